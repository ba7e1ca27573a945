"""db: access to PostgreSQL.

NAME     db, the lowest layer: it imports no capability
OWNS     the tables `migrations`, `processes` and `loop_failures`
         connection one connection: the first host that accepts it, verified TLS, time limits
         primary    closes connections to a server that is gone or no longer the primary
         replica    reads that may be late, and the lag of the replica
         failures   background loops that raised an error, for `postroom doctor`
         retention  deletes old rows in bounded steps, as the capabilities declare it
         pool       connections whose search path is the room
         queries    named statements from `queries.sql` files
         migrate    numbered migrations and canonical function files
         processes  running processes and their releases, for upgrades without a pause
         listen     wake-ups by NOTIFY, with reconnection
         faults     SQLSTATE → Python error, whichever driver raised it
         drivers    applications' connections of psycopg, psycopg2, SQLAlchemy and Django
         iam        tokens of AWS IAM as passwords
         url        hosts, TLS mode, and the address for other programs, with the password separate
CALLED BY  every capability's store, and app
FAILURES   a statement that takes longer than POSTROOM_DATABASE_TIMEOUT raises `TimeoutError` and its connection is
           dropped; the server ends a transaction whose client is gone; `DatabaseUnreachable`, `DatabaseNewer`,
           `MigrationChanged`, `MigrationPending`, `OldProcessRuns`
"""
