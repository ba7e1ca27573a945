-- INSERT INTO email_queue accepts a delivery as send(…) does, with its checks and suppression; an error names the
-- column. A text in campaign_id groups mails: it is stored as the tag `campaign_id` and is not a campaign of Postroom.
CREATE OR REPLACE FUNCTION insert_email_queue() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- an application may insert without rights on deliveries
SET search_path FROM CURRENT
AS $$
DECLARE
    v_column text;
BEGIN
    SELECT name INTO v_column
    FROM (VALUES
        ('id', NEW.id IS NOT NULL),
        ('tracking_token', NEW.tracking_token IS NOT NULL),
        ('status', coalesce(NEW.status, 'pending') <> 'pending'),
        ('assigned_to', NEW.assigned_to IS NOT NULL),
        ('assigned_at', NEW.assigned_at IS NOT NULL),
        ('retry_count', coalesce(NEW.retry_count, 0) <> 0),
        ('last_error', NEW.last_error IS NOT NULL),
        ('created_at', NEW.created_at IS NOT NULL),
        ('updated_at', NEW.updated_at IS NOT NULL),
        ('sent_at', NEW.sent_at IS NOT NULL)
    ) AS kept(name, is_given)
    WHERE is_given
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: is set by Postroom and cannot be given', v_column USING ERRCODE = 'PR101', COLUMN = v_column;
    END IF;
    PERFORM check_email_queue(NEW.recipient_email, NEW.recipient_name, NEW.html_body, NEW.text_body);
    NEW.id := send(
        p_to => ARRAY[CASE WHEN NEW.recipient_name IS NULL THEN NEW.recipient_email
            ELSE format('"%s" <%s>', NEW.recipient_name, NEW.recipient_email) END],
        p_subject => NEW.subject,
        p_text => NEW.text_body,
        p_html => NEW.html_body,
        p_lane => CASE WHEN NEW.campaign_id IS NULL THEN 'transactional' ELSE 'bulk' END,
        p_source => 'email_queue',
        p_send_at => NEW.next_retry_at,
        p_max_retries => NEW.max_retries,
        p_tags => CASE WHEN NEW.campaign_id IS NOT NULL THEN jsonb_build_object('campaign_id', NEW.campaign_id) END,
        p_custom_data => NEW.custom_data
    );
    -- The values of RETURNING, set without reading the view: a role that sends need not have read access.
    SELECT CASE d.state WHEN 'suppressed' THEN 'failed' ELSE 'pending' END,
        CASE d.state WHEN 'suppressed' THEN 'recipient_suppressed' END,
        CASE d.state WHEN 'suppressed' THEN NULL ELSE greatest(coalesce(NEW.next_retry_at, now()), now()) END,
        0, d.created_at, d.created_at
    INTO NEW.status, NEW.last_error, NEW.next_retry_at, NEW.retry_count, NEW.created_at, NEW.updated_at
    FROM deliveries AS d
    WHERE d.id = NEW.id;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER insert_email_queue
    INSTEAD OF INSERT ON email_queue
    FOR EACH ROW EXECUTE FUNCTION insert_email_queue();
