"""backup: one room in one file, verified by restoring it.

NAME     backup, by PostgreSQL's own pg_dump, of the room and nothing else of the database
CALLS    `pg_dump` and `pg_restore` of the embedded server's wheel or of the host; archive's object stores
PROMISES a backup is one moment: what it holds and what its manifest counts were read in one snapshot. It is restored
         into a server of its own and compared, table by table, before it counts. It comes back whole or not at all,
         into a room that does not exist yet, here or in another cluster, under its own name or another. A restore that
         was killed is finished by asking for it again; until then nobody else opens the room
STORES   a file, a folder or a bucket. With POSTROOM_BACKUP_URL one worker makes a backup when the newest is older than
         POSTROOM_BACKUP_INTERVAL, and keeps POSTROOM_BACKUP_KEEP of them; `postroom migrate` makes one, unverified,
         before the tables of a room with data change
AFTER A RESTORE  events and their followers go on in a new epoch, and the collector of tokens where it was; what had
         been sent between backup and restore is in the queue again, and only people can know it
FAILURES   `BackupFailed`, `RoomNotEmpty`
"""
