"""backup: one room in one file, verified by restoring it.

NAME     backup, by PostgreSQL's own pg_dump, of the room and nothing else of the database
CALLS    `pg_dump` and `pg_restore` of the embedded server's wheel or of the host; archive's object stores
PROMISES a backup is one snapshot: its rows and the counts of its manifest. It is restored into a server of its own and
         compared, table by table, before it is valid. A restore is all or nothing, into a room that does not exist yet,
         in this or another cluster, under its own name or another. A killed restore is finished by the same command;
         until then no other process opens the room
STORES   a file, a folder or a bucket. With POSTROOM_BACKUP_URL one worker makes a backup when the newest is older than
         POSTROOM_BACKUP_INTERVAL, and keeps POSTROOM_BACKUP_KEEP of them; `postroom migrate` makes one, unverified,
         before the tables of a room with data change
AFTER A RESTORE  events and their followers continue in a new epoch, and the collector of tokens at its position. Mail
         that was sent between backup and restore is queued again; only an operator can know which
FAILURES   `BackupFailed`, `RoomNotEmpty`
"""
