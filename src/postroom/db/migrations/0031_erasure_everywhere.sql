-- Erasing reaches further: keys that machines made, the audit log, and files that must wait are named.

-- What an erasure could not clean yet, and why: paths of files, never whom they hold.
ALTER TABLE erasures ADD COLUMN waits_for text[] NOT NULL DEFAULT '{}';
ALTER TABLE erasures ADD CONSTRAINT erasures_waits_while_running CHECK (state <> 'done' OR waits_for = '{}');

-- While a piece is written anew it has two files: the one that `path` names counts, the other is removed by whoever erases.
ALTER TABLE archived_partitions ADD COLUMN spare_path text;

-- Its parameters are others than before.
DROP FUNCTION IF EXISTS erase_pages(text, text[], text, text, bigint, bigint);

-- Append-only for everybody but erase_audit, which runs as the owner and changes nothing but an address.
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('postroom.erasing', true) = 'on'
        AND current_user = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID)
    THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'PR003';
END
$$;
