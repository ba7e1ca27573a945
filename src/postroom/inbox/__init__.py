"""inbox: the capture transport and its inbox, in place of the internet.

NAME     capture, the transport of development, demonstrations and tests
OWNS     the table `inbox_messages`: the bytes as they would have left, with their envelope
CALLED BY  delivery's worker (`CaptureTransport`), the API (`service`)
STATES   a message is there, or it was deleted: by `inbox clear`, or because newer ones fill POSTROOM_INBOX_LIMIT
FAILURES   a 250 is given only after the commit; a database that goes away before it is known is no answer at `final`

Nothing captured ever leaves. Some recipients behave badly on purpose, whatever their domain and with any suffix
(`bounce+signup@example.org`), so that an application can see how its mail fails:

    bounce     550 5.1.1  no such mailbox; refused
    blocked    550 5.7.1  refused by policy
    full       452 4.2.2  mailbox full; deferred
    defer      451 4.3.0  deferred
    slow       delivered, after two seconds
    drop       the line drops while the content is transferred; deferred
    ambiguous  the content is handed over and captured, and no answer comes

Recipients of one message are answered one by one; the good ones get it. `drop` and `ambiguous` concern the line, and
with it the whole message.
"""
