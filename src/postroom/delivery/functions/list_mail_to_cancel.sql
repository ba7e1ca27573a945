-- The deliveries for which unfinished mass cancels wait: usually none.
CREATE OR REPLACE FUNCTION list_mail_to_cancel() RETURNS bigint[]
LANGUAGE sql STABLE
AS $$
    SELECT coalesce((
        SELECT array_agg(pending.id)
        FROM mass_actions AS m, unnest(m.pending) AS pending(id)
        WHERE m.finished_at IS NULL AND m.kind = 'cancel'
    ), '{}')
$$;
