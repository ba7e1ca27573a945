-- Erase an address from the queue and the ledger. Mail to this recipient only is cancelled, also while it is being
-- sent; mail with other recipients continues without this one. The delivery stays, with the pseudonym as recipient. A
-- finished delivery loses its body; the body of a waiting one loses the address. Returns the ids of the recipient's
-- deliveries. A resend locks its original, so it has committed its copy when the original can be locked here: the search is
-- repeated until it finds no further delivery. Later resends wait for the locks, and copy the pseudonym.
CREATE OR REPLACE FUNCTION erase_deliveries(p_address text, p_pseudonym text, p_now timestamptz DEFAULT now()) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_ids    bigint[];
    v_sole   bigint[];
    v_locked bigint[] := '{}';
BEGIN
    LOOP
        SELECT coalesce(array_agg(DISTINCT delivery_id), '{}') INTO v_ids
        FROM delivery_recipients
        WHERE hashtext(lower(email)) = hashtext(p_address) AND lower(email) = p_address AND kind <> 'reply_to';
        EXIT WHEN v_ids <@ v_locked;
        PERFORM FROM deliveries WHERE id = ANY(v_ids) ORDER BY id FOR UPDATE;
        v_locked := v_ids;
    END LOOP;

    SELECT coalesce(array_agg(id), '{}') INTO v_sole
    FROM unnest(v_ids) AS id
    WHERE NOT EXISTS (
        SELECT FROM delivery_recipients AS r
        WHERE r.delivery_id = id AND r.kind <> 'reply_to' AND lower(r.email) <> p_address
    );
    WITH cancelled AS (
        UPDATE deliveries AS d
        SET state = 'cancelled', next_attempt_at = NULL, claim_id = NULL, finished_at = greatest(p_now, created_at), reason = 'erased'
        WHERE d.id = ANY(v_ids) AND d.state IN ('queued', 'rendered', 'sending')
            AND NOT EXISTS (
                SELECT FROM delivery_recipients AS r
                WHERE r.delivery_id = d.id AND r.kind <> 'reply_to' AND lower(r.email) <> p_address
                    AND r.outcome IN ('pending', 'ambiguous')
            )
        RETURNING *
    )
    INSERT INTO delivery_steps (
        transaction_id, written_by, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id, domain
    )
    SELECT place.transaction_id, place.written_by, id, finished_at, 'cancelled', lane, channel, source, reason, attempt_count,
        campaign_id, sender_account_id, CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
    FROM cancelled
    CROSS JOIN LATERAL assign_step_place(cancelled.id) AS place;
    PERFORM wake_event_followers();
    UPDATE deliveries AS d
    SET tags = CASE WHEN d.id = ANY(v_sole) THEN NULL ELSE erase_tags(d.tags, p_address, p_pseudonym) END,
        custom_data = CASE
            WHEN d.id = ANY(v_sole) THEN NULL ELSE erase_text(d.custom_data::text, p_address, p_pseudonym)::jsonb
        END,
        detail = erase_text(d.detail, p_address, p_pseudonym),
        -- A key that contains the address is deleted with its fingerprint: the same request is then a new one.
        idempotency_key = CASE WHEN strpos(lower(d.idempotency_key), p_address) = 0 THEN d.idempotency_key END,
        request_fingerprint = CASE WHEN strpos(lower(d.idempotency_key), p_address) = 0 THEN d.request_fingerprint END,
        idempotency_expires_at = CASE WHEN strpos(lower(d.idempotency_key), p_address) = 0 THEN d.idempotency_expires_at END
    WHERE d.id = ANY(v_ids);

    DELETE FROM delivery_payloads AS p
    USING deliveries AS d
    WHERE p.delivery_id = ANY(v_ids) AND d.id = p.delivery_id AND d.finished_at IS NOT NULL;
    UPDATE delivery_payloads AS p
    SET subject = erase_text(p.subject, p_address, p_pseudonym),
        text_body = erase_text(p.text_body, p_address, p_pseudonym),
        html_body = erase_text(p.html_body, p_address, p_pseudonym),
        variables = erase_text(p.variables::text, p_address, p_pseudonym)::jsonb,
        headers = erase_text(p.headers::text, p_address, p_pseudonym)::jsonb
    WHERE p.delivery_id = ANY(v_ids);

    UPDATE dead_letters AS l SET detail = erase_text(l.detail, p_address, p_pseudonym) WHERE l.delivery_id = ANY(v_ids);
    UPDATE attempts AS a SET reply_text = NULL WHERE a.delivery_id = ANY(v_ids) AND a.reply_text IS NOT NULL;
    UPDATE deliveries AS d
    SET recipient_email = p_pseudonym, recipient_name = NULL, recipient_detail = NULL,
        recipient_outcome = CASE WHEN d.recipient_outcome IN ('pending', 'ambiguous') THEN 'suppressed' ELSE d.recipient_outcome END
    WHERE d.id = ANY(v_ids) AND lower(d.recipient_email) = p_address;
    UPDATE other_recipients AS r
    SET email = p_pseudonym, name = NULL, detail = NULL,
        outcome = CASE WHEN r.outcome IN ('pending', 'ambiguous') AND r.kind <> 'reply_to' THEN 'suppressed' ELSE r.outcome END
    WHERE r.delivery_id = ANY(v_ids) AND lower(r.email) = p_address;
    -- Not every row with the address: a recipient of mail that was committed meanwhile must become suppressed, too.
    UPDATE other_recipients AS r
    SET email = p_pseudonym, name = NULL
    WHERE r.kind = 'reply_to' AND hashtext(lower(r.email)) = hashtext(p_address) AND lower(r.email) = p_address;
    RETURN v_ids;
END
$$;
