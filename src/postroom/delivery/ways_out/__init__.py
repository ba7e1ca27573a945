"""delivery.ways_out: whether the relay and the sender accounts answer, and what happens after an outage.

Each worker counts its attempts by way out, and adds the counts to `ways_out` every few seconds. A way out fails while
every attempt ends before a mail was offered: at connect, TLS or login. When that has lasted for `PATIENCE`, one worker
probes the relay (connect, TLS, login, no mail). If the probe fails too, the log has one event `relay_unreachable`.
While the outage lasts, probes continue.

When a probe or a mail gets through, the log has one event `relay_back`. The process that logs it makes the mail due
that the relay never saw, in slices of `SLICE`, lane auth first. All other deferred mail keeps its time.

Sender accounts are counted in the same way, and are not probed: their mail goes to another account, and `slots` pauses
accounts that no worker reaches.
"""
