"""Postroom beside its peers: one command, one machine, one run, ratios.

    python -m bench                       every row, three rounds
    python -m bench drain end-to-end      some rows
    python -m bench --quick               a smoke run: small sizes, one round
    python -m bench --json                the same facts for a machine

It needs requirements-dev.lock, bench/requirements.lock and `src` on the path.

    rows.py       experiments and their rows: unit and size
    targets.py    the target of each row
    harness.py    interleaved rounds, sizes that last long enough, medians
    report.py     the table and the JSON
    cost.py       CPU of PostgreSQL and of Python, WAL and statements of one operation
    server.py     a separate PostgreSQL with default durability
    sink.py       an SMTP server that counts mail and discards it
    workers.py    worker processes: time, cost and memory
    letters.py    the mail that every subject sends
    subjects/     one module per subject, all with the same shape

Rates move with the machine and its other load: compare subjects of the same run. CPU per operation hardly moves:
optimise by it. Every rate is printed with its costs.
"""
