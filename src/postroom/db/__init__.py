"""db: PostgreSQL, as Postroom uses it.

NAME     db, the ground floor: it knows PostgreSQL and no capability
OWNS     the table `migrations`
         binaries   where PostgreSQL's programs are
         embedded   a server of our own under a data directory
         pool       connections whose search path is the room
         queries    named statements out of `queries.sql` files
         migrate    numbered migrations and canonical function files
         listen     wake-ups by NOTIFY, with reconnection
         faults     SQLSTATE → Python error
         url        its address for other programs, and the password apart
CALLED BY  every capability's store, and app
FAILURES   `DatabaseUnreachable`, `DatabaseNewer`, `MigrationChanged`, `MigrationPending`, `EmbeddedServerError`
"""
