-- Record the history of suppressions: every change of the table writes a row, for every client, and a fact without
-- personal data. For a manual lift, `postroom.actor` and `postroom.note` name the actor and the reason in the
-- transaction. A large import sets `postroom.quiet` and appends no facts, only history. An erased address marks the room,
-- so that accepting looks for pseudonyms.
CREATE OR REPLACE FUNCTION record_suppression_changes() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may suppress need not have write access to history or events
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
SET enable_nestloop = off -- transition tables have no statistics, and a nested loop would compare every pair
AS $$
DECLARE
    v_actor text := nullif(current_setting('postroom.actor', true), '');
    v_note  text := nullif(current_setting('postroom.note', true), '');
    v_type  text := CASE WHEN TG_OP = 'DELETE' THEN 'SuppressionLifted' ELSE 'RecipientSuppressed' END;
    v_types text[];
    v_ids   bigint[];
    v_data  jsonb[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO suppression_changes (suppression_id, at, until, scope, reason, change, address, origin, actor, note)
        SELECT id, last_seen_at, until, scope, reason, 'suppressed', address, origin, v_actor, v_note
        FROM new_rows;
        SELECT array_agg(v_type), array_agg(id), array_agg(jsonb_build_object(
            'suppression', id, 'reason', reason, 'scope', scope, 'until', until, 'campaign', campaign_id))
        INTO v_types, v_ids, v_data
        FROM new_rows;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO suppression_changes (suppression_id, at, until, scope, reason, change, address, origin, actor, note)
        SELECT n.id, n.last_seen_at, n.until, n.scope, n.reason,
            CASE WHEN n.reason <> o.reason THEN 'raised' ELSE 'held' END, n.address, n.origin, v_actor, v_note
        FROM new_rows AS n
        JOIN old_rows AS o USING (id)
        WHERE n.reason <> o.reason OR n.until IS DISTINCT FROM o.until;
        SELECT array_agg(v_type), array_agg(n.id), array_agg(jsonb_build_object(
            'suppression', n.id, 'reason', n.reason, 'scope', n.scope, 'until', n.until, 'campaign', n.campaign_id))
        INTO v_types, v_ids, v_data
        FROM new_rows AS n
        JOIN old_rows AS o USING (id)
        WHERE n.reason <> o.reason OR n.until IS DISTINCT FROM o.until;
    ELSE
        INSERT INTO suppression_changes (suppression_id, until, scope, reason, change, address, origin, actor, note)
        SELECT id, until, scope, reason,
            CASE WHEN reason = 'soft_bounce' AND v_actor IS NULL THEN 'cleared' ELSE 'lifted' END,
            address, origin, v_actor, v_note
        FROM old_rows;
        SELECT array_agg(v_type), array_agg(id), array_agg(jsonb_build_object(
            'suppression', id, 'reason', reason, 'scope', scope))
        INTO v_types, v_ids, v_data
        FROM old_rows;
    END IF;
    IF TG_OP <> 'DELETE' THEN -- a DELETE has no new_rows
        PERFORM mark_room(p_has_erased => true) WHERE EXISTS (SELECT FROM new_rows WHERE address LIKE 'erased:%');
    END IF;
    IF v_types IS NOT NULL
        AND current_setting('postroom.quiet', true) IS DISTINCT FROM 'on'
        AND EXISTS (SELECT FROM recorded_facts WHERE type = v_type)
    THEN
        PERFORM append_facts('postroom.suppression', v_types, v_ids, v_data);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER suppressions_insert_history
    AFTER INSERT ON suppressions
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_suppression_changes();

CREATE OR REPLACE TRIGGER suppressions_update_history
    AFTER UPDATE ON suppressions
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_suppression_changes();

CREATE OR REPLACE TRIGGER suppressions_delete_history
    AFTER DELETE ON suppressions
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_suppression_changes();
