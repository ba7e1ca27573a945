-- The time at which the feeder has work: recipients are due, a campaign may be complete, or its mail contradicts its status.
-- NULL: no campaign needs the feeder.
CREATE OR REPLACE FUNCTION next_feed_at() RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT min(CASE
            WHEN c.has_stray_mail THEN now()
            WHEN c.status <> 'active' THEN NULL
            WHEN c.due_at IS NOT NULL THEN c.due_at
            WHEN NOT c.has_mail THEN now()
        END)
        FROM unfinished_campaigns() AS c
    );
END
$$;
