-- True if appends can be checked and written together because none can change the result of another: each has one
-- event, no condition or the simplest one (no event with this tag exists), and no append of the batch adds an event
-- with a tag that the condition of another append names.
CREATE OR REPLACE FUNCTION are_separate_appends(p_appends jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        WITH append AS MATERIALIZED (
            SELECT a.types, a.tags[1]::text[] AS tags, a.condition, a.idempotency, only_tag(a.condition -> 'query') AS asked, ordinal
            FROM ROWS FROM (jsonb_to_recordset(p_appends) AS (types text[], tags text[], condition jsonb, idempotency jsonb))
                WITH ORDINALITY AS a(types, tags, condition, idempotency, ordinal)
        )
        SELECT bool_and(
                cardinality(types) = 1 AND idempotency IS NULL
                AND (condition IS NULL OR (asked IS NOT NULL AND condition ->> 'after' IS NULL)))
            AND NOT EXISTS (
                SELECT
                FROM (SELECT asked, ordinal FROM append WHERE asked IS NOT NULL) AS asking
                JOIN (SELECT carried.tag, ordinal FROM append, unnest(tags) AS carried(tag)) AS bringing ON bringing.tag = asking.asked
                WHERE bringing.ordinal <> asking.ordinal
            )
        FROM append
    );
END
$$;
