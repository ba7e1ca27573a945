"""outbox.mails: rules that turn events into mails.

A rule selects the events of one type in one topic, and names a template, the path of the address in the event's data,
and a lane. The event's data are the template's variables. The mail's idempotency key consists of the message id and the
rule, so that a rewind sends no mail twice while the key is remembered.
"""
