"""Postroom beside its peers: one command, one machine, one run, ratios.

    python -m bench                       every row, three rounds
    python -m bench drain end-to-end      some rows
    python -m bench --quick               a smoke run: small sizes, one round
    python -m bench --json                the same facts for a machine

It needs requirements-dev.lock, bench/requirements.lock and `src` on the path.

    rows.py       what is measured, in which unit, at which size
    targets.py    what Postroom promised for each row
    harness.py    interleaved rounds, sizes that last long enough, medians
    report.py     the table and the JSON
    server.py     a PostgreSQL of its own, with default durability
    sink.py       an SMTP server that counts and throws away
    workers.py    worker processes: how long they took and how much memory they held
    letters.py    the mail everybody sends
    subjects/     one module per contender, all with the same shape

Absolute figures move with the machine and with what else it does. Ratios between subjects of the same run are the
finding; a rate on its own is only a hint.
"""
