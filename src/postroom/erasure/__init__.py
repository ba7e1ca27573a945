"""erasure: delete everything a room holds about one address.

NAME     erasure, by address, case-insensitive
OWNS     the tables `erasures` and `erasure_key`
CALLS    the stored functions `erase_…` of accounts, campaigns, delivery, events, feedback and inbox, each for its own
         tables. `erase_rows` and `erase_pages` change the columns that are listed in `places`
STATES   database → archive → done. The row of the erasure holds the address until it is done, and not afterwards
PROMISES rows that an index finds change in one transaction; texts are searched in bounded steps; files of the archive
         are rewritten one by one, each under a new path. Every step can be repeated: a killed erasure is resumed by the
         loop, or by the same request. After a missing or damaged file, or an unreachable store, it continues with the
         other files; its row names the problem, and it is not done while a known file has the address. A damaged file
         is never rewritten. A suppression stays under a keyed hash that still suppresses. The audit log has no address.
LIMITS   only the plain form of the address is found: not base64, not percent-encoding, not attachments; not mail to
         others that mentions it, which the retention of bodies deletes; not backups or PostgreSQL's write-ahead log;
         not data that was published to webhooks, streams and mailboxes
"""
