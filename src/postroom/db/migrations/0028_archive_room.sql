-- Whose the files of the archive are. A room restored under another name, or into another cluster, comes with the records of
-- the room it was copied from, but those files are not its own: it reads them and never changes them. A file is the room's
-- own if the piece carries the room's id, and the id is only the room's while the room is where it got it: a copy is not.

-- The identity under which this room writes to its archive.
CREATE TABLE archive_room (
    is_only    boolean NOT NULL DEFAULT true PRIMARY KEY,
    id         uuid    NOT NULL DEFAULT gen_random_uuid(),
    schema_oid oid     NOT NULL, -- another one in the same place: an older state of the room came back
    place      text    NOT NULL, -- cluster, database and schema; see functions/archive_place.sql
    CONSTRAINT archive_room_one_row CHECK (is_only)
);

-- The cluster is the one that the events were counted in: a dump that is migrated after it came back tells where it was.
INSERT INTO archive_room (schema_oid, place)
SELECT n.oid, concat_ws('/', (SELECT system_identifier FROM event_clock LIMIT 1), d.oid, n.nspname)
FROM pg_namespace AS n, pg_database AS d
WHERE n.nspname = current_schema() AND d.datname = current_database();

ALTER TABLE archived_partitions ADD COLUMN room_id uuid; -- the room that wrote the file; NULL: nobody knows

UPDATE archived_partitions SET room_id = (SELECT id FROM archive_room);

-- What is on its way begins again under a path of its own: the old paths did not say whose they were, and a file found there
-- may be another room's.
UPDATE archived_partitions
SET state = CASE state WHEN 'collecting' THEN state ELSE 'exporting' END, store_url = NULL,
    path = format('%s-%s/%s', current_schema(), left(room_id::text, 8), path)
WHERE state NOT IN ('archived', 'expired');
