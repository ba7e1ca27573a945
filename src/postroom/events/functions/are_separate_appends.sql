-- Whether appends can be judged and written together because none of them can change what becomes of another: each is one
-- event, with no condition or with the plainest one (nothing under this tag, ever), and nobody else in the batch brings an
-- event under a tag that somebody's condition asks about.
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
