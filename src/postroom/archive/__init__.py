"""archive: move old months to verified files, and restore them on request.

NAME     archive, partitions, retention, export, erasure, backup
OWNS     the tables `archived_partitions` and `archive_room`; the files of the archive, in a
         folder or a bucket, each in the store that its record names
STATES   of a piece (one month of a table, or what came late of it):
         collecting → exporting → exported → verified → detached → archived → expired
         Each step is one transaction or can be repeated: after a kill, the row of the piece says which step is next.
         A table is dropped only after its file was read back and compared with the frozen table, byte for byte.
         A piece that fails is reported; the other pieces continue.
FILES    belong to the room that wrote them, in a folder of its own. No path is written twice, so rooms can share a
         store. A copy of a room is detected by its new location: it reads the original's files and never changes them,
         until `archive adopt` takes them over. Local files and backups have mode 0600
STEPS    of deliveries stay in the database until statistics and every publisher of their facts have read them
RESTORED months are released only while their rows equal those of their files: added rows exist nowhere else
LOOP     every hour: continue erasures that need files, archive old months, make the backup that is due. A part that
         fails does not stop the others. Without an archive URL the loop only creates future partitions
RIGHTS   stored functions that run as the owner change tables; they accept only months of partitioned tables
CALLS    events (audit), delivery (what an address is), db
CALLED BY  cli, http, and the loop of `postroom work`
FAILURES   `ArchiveBusy`, `ArchiveDamaged`, `ArchiveExtraMissing`, `ArchiveForeign`, `ArchivePathTaken`,
         `ArchiveUnreachable`, `BackupFailed`, `ErasureNotFound`, `MonthTaken`, `RoomNotEmpty`, `SegmentNotFound`
NEEDS    the extra `archive` (pyarrow; obstore for buckets; duckdb for queries); erasure of the database alone and
         backup need none of them
"""
