"""archive: what is old leaves the database, provably, and what is asked for comes back.

NAME     archive, partitions, retention, export, erasure, backup
OWNS     the tables `archived_partitions`, `erasures`, `erasure_key`; the files of the archive, in a folder or a bucket
STATES   of a piece (one month of a table, or what came late of it):
         collecting → exporting → exported → verified → detached → archived → expired
         Each step is one transaction or can be done again: a process killed anywhere leaves a row that says where to go
         on. Nothing is dropped before its file was read back and the frozen table was compared with it, byte for byte.
CALLS    events (audit), db
CALLED BY  cli, http, and the loop of `postroom work`
FAILURES   `ArchiveBusy`, `ArchiveDamaged`, `ArchiveExtraMissing`, `SegmentNotFound`, `BackupFailed`, `RoomNotEmpty`
NEEDS    the extra `archive` (pyarrow; obstore for buckets; duckdb for queries); erasure of the database alone and
         backup need none of them
"""
