"""delivery.listing: pages of deliveries by any combination of filters, at a cost that does not grow with the table.

One filter finds the ids, newest first, in an index made for it; `pages.FINDERS` has the filters in order of preference.
One statement then reads those deliveries and applies the other filters. A page examines a bounded number of ids: if the
other filters reject nearly all of them, the page has fewer items than requested, even none, and a cursor that continues
the search.

Lane, sender account, reason, `finished_before` and a part of an address have no index: a page compares a bounded number
of deliveries, newest first, or of those that another filter finds.

Tags and custom data are indexed without an order. A value that few deliveries have is found there, and a page reads all
of them; `has_frequent_data` decides it by a sample in the same index. A frequent value is compared as a lane is: values
of old deliveries take many pages in a large room (ADR 72).

A time is found by a binary search of the ids, because a delivery gets both at once (ADR 68).
"""
