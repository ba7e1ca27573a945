-- Lock the due mail of a lane, oldest first; the settings of lock_due_deliveries apply. Mail of a paused or cancelled
-- campaign never leaves, even if it became due: a stopping worker releases mail claimed before the pause, and the feeder
-- has not run yet. Nor does mail for which a mass cancel waits (`mass_actions.pending`): it was in flight when the action looked, and
-- has returned. The subquery does not depend on the mail, so it runs once for each claim. At most p_bytes of content are locked (NULL: any amount), but always one mail. Sizes are read by a
-- subquery per row: as a join, a cached plan would read all payloads. Content is stored uncompressed, so its stored size is
-- its size. Only a JSON value that an application copies compressed from a table weighs less than it is; check_send_data limits
-- that to what a chunk of 100 mails may have.
--  The waiting row and the record are locked together. Every other writer locks the record first and then, in the trigger,
-- the waiting row: because a claim waits for neither of them, it cannot deadlock with such a writer.
CREATE OR REPLACE FUNCTION lock_due_mail(
    p_lane delivery_lane, p_limit integer, p_now timestamptz, p_bytes bigint DEFAULT NULL
) RETURNS bigint[]
LANGUAGE sql
AS $$
    SELECT ARRAY(
        SELECT weighed.id
        FROM (
            SELECT sized.id, sum(sized.size) OVER (ROWS UNBOUNDED PRECEDING) - sized.size AS before
            FROM (
                SELECT due.id, coalesce((
                    SELECT coalesce(octet_length(p.text_body), 0) + coalesce(octet_length(p.html_body), 0)
                        + coalesce(pg_column_size(p.attachments), 0) + coalesce(pg_column_size(p.variables), 0)
                        + coalesce(pg_column_size(p.headers), 0)
                    FROM delivery_payloads AS p
                    WHERE p.delivery_id = due.id), 0)::bigint AS size
                FROM (
                    SELECT w.id
                    FROM due_deliveries AS w
                    JOIN deliveries AS d ON d.id = w.id
                    WHERE w.lane = p_lane AND w.channel = 'email' AND w.due_at <= p_now
                        AND (w.campaign_id IS NULL OR NOT EXISTS (
                            SELECT FROM campaigns AS c
                            WHERE c.id = w.campaign_id AND c.status IN ('paused', 'cancelled')))
                        AND w.id <> ALL ((SELECT list_mail_to_cancel())::bigint[])
                    ORDER BY w.due_at, w.id
                    LIMIT p_limit
                    FOR UPDATE OF w, d SKIP LOCKED
                ) AS due
            ) AS sized
        ) AS weighed
        WHERE weighed.before < coalesce(p_bytes, weighed.before + 1)
    )
$$;
