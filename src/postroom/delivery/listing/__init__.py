"""delivery.listing: pages of deliveries by any combination of filters, at a cost that does not grow with the table.

One filter finds the ids, newest first, in an index made for it; `pages.FINDERS` has the filters in order of preference.
One statement then reads those deliveries and applies the other filters. A page examines a bounded number of ids: if the
other filters reject nearly all of them, the page has fewer items than requested, even none, and a cursor that continues
the search. No index finds a part of an address: a page compares the addresses of a bounded number of deliveries.

A time is found by a binary search of the ids, because a delivery gets both at once (ADR 68).

Tags and custom data are indexed without an order: a page sorts all deliveries that have the value. A value that one
delivery in forty has is found among the newest ones instead; in between, a page among very many takes longer.
"""
