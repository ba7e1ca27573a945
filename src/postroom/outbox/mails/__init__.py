"""outbox.mails: events that become mails, by rules.

A rule says: in this topic, an event of this type is a mail from this template, to the address at this path in its
data, in this lane. The event's data are the template's variables. The mail's idempotency key is made from the message's
id and the rule, so that not even a rewind mails anybody twice while the key is remembered.
"""
