"""inbox: the capture transport and its inbox, in place of the internet.

NAME     capture, the transport of development, demonstrations and tests
OWNS     the table `inbox_messages`: the bytes as they would have left, with their envelope; `inbox_releases`
CALLED BY  delivery's worker (`CaptureTransport`), the API, the command line and the dashboard (`service`, `checks`,
         `release`); pytest (`pytest_plugin`)
CALLS    delivery (`accept`, for a release); nothing leaves this machine but a released message and requested links
STATES   a message is unread until a person opens it; it exists until `inbox delete` or `inbox clear` deletes it, or
         newer ones exceed POSTROOM_INBOX_LIMIT
FAILURES   a 250 is returned only after the commit; if the connection is lost before, the reply is ambiguous (`final`)

Captured mail never leaves, unless a person releases a message: that is a new delivery, recorded in `inbox_releases`,
which the transport sends through POSTROOM_INBOX_RELEASE_RELAY. Some recipients fail on purpose, with any domain and
any suffix (`bounce+signup@example.org`), so that an application can test how its mail fails:

    bounce     550 5.1.1  no such mailbox; rejected
    blocked    550 5.7.1  rejected by policy
    full       452 4.2.2  mailbox full; deferred
    defer      451 4.3.0  deferred
    slow       delivered, after two seconds
    drop       the connection is lost during the content; deferred
    ambiguous  the content is captured, and no reply is returned

Each recipient of a message gets its own reply; accepted ones get the message. `drop` and `ambiguous` affect the
connection, and so the whole message.
"""
