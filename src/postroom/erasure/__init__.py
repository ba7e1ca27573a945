"""erasure: delete everything a room holds about one address.

NAME     erasure, by address, in any case
OWNS     the tables `erasures` and `erasure_key`
CALLS    the stored functions `erase_…` of accounts, campaigns, delivery, events, feedback and inbox, each for its own
         tables. `erase_rows` and `erase_pages` change the columns that are listed in `places`
STATES   database → archive → done. The address stands in the row of the erasure until it is done, and nowhere after
PROMISES what is indexed goes in one transaction; what must be searched goes in bounded steps; files of the archive are
         rewritten one by one, each under a new path. Every step can be done again: an erasure that was killed is asked
         for again, or found by the loop. One that meets a file that is missing or damaged, or a store that does not
         answer, goes on with the others and is not done; its row says what it waits for. It is never done while a file
         that the archive knows of has the address, and never makes a damaged file good. A suppression stays under a
         keyed hash that still suppresses. The audit log has no address.
LIMITS   only the address as it is written is found: not in base64, not percent-encoded, not in attachments; not in mail
         to other people that mentions it, which goes with the retention of bodies; not in backups or PostgreSQL's own
         log of changes; not in what was published to webhooks, streams and mailboxes
"""
