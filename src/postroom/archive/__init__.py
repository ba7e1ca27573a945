"""archive: what is old leaves the database, provably, and what is asked for comes back.

NAME     archive, partitions, retention, export, erasure, backup
OWNS     the tables `archived_partitions` and `archive_room`; the files of the archive, in a
         folder or a bucket, each in the store that its record names
STATES   of a piece (one month of a table, or what came late of it):
         collecting → exporting → exported → verified → detached → archived → expired
         Each step is one transaction or can be done again: a process killed anywhere leaves a row that says where to go
         on. Nothing is dropped before its file was read back and the frozen table was compared with it, byte for byte.
         One piece that cannot go on is told and does not keep the others.
FILES    belong to the room that wrote them, and lie in a folder of its own. No path is written twice, and none that is
         taken: rooms may share a store. A copy of a room knows that it is one, being elsewhere than where it got
         its id: it reads the files of the original and never changes them, until `archive adopt` says that it goes on.
         Those on a disk, and backups, can be read by the user that Postroom runs as and by nobody else
RESTORED months are let go only while they have the rows of their files and no others: what was added is nowhere else
LOOP     every hour it continues erasures that wait for files, archives, and makes the backup that is due; one part
         that fails does not stop the others. Without a place for the archive only partitions are made ahead
RIGHTS   what changes tables is done by functions that run as the owner and reach only months of partitioned tables
CALLS    events (audit), delivery (what an address is), db
CALLED BY  cli, http, and the loop of `postroom work`
FAILURES   `ArchiveBusy`, `ArchiveDamaged`, `ArchiveExtraMissing`, `ArchiveForeign`, `ArchivePathTaken`,
         `ArchiveUnreachable`, `BackupFailed`, `ErasureNotFound`, `MonthTaken`, `RoomNotEmpty`, `SegmentNotFound`
NEEDS    the extra `archive` (pyarrow; obstore for buckets; duckdb for queries); erasure of the database alone and
         backup need none of them
"""
