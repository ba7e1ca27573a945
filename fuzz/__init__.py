"""Hostile input against a running Postroom: `./dev fuzz [--seconds N] [--seed S] [target …]`.

A real `postroom up` with an embedded PostgreSQL and a data directory of its own listens on loopback. Targets attack it
one after the other for equal times; a case is a function of the seed, the target and the case's number. An independent
client in another process asks /healthz and sends a mail every 20 ms throughout. The report says per target: cases,
answers by class, 5xx, the delays of the independent client, and the largest memory of the server. docs/security.md has
the figures.
"""
