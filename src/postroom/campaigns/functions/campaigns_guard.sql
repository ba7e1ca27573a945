-- Reject a change of a started campaign's letter, and every status change that is not a documented transition. A campaign of
-- which no mail was queued can return to a draft. All
-- recipients get the same letter, whichever client writes the row.
CREATE OR REPLACE FUNCTION campaigns_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('draft', 'active'), ('active', 'paused'), ('active', 'completed'), ('active', 'cancelled'),
        ('paused', 'active'), ('paused', 'cancelled'))
        AND NOT (OLD.status IN ('active', 'paused') AND NEW.status = 'draft' AND NEW.fed_count = 0)
    THEN
        RAISE EXCEPTION 'a campaign that is % cannot become %', OLD.status, NEW.status
            USING ERRCODE = 'PR071', COLUMN = 'status';
    END IF;
    IF OLD.status <> 'draft' AND
        (NEW.subject, NEW.html_body, NEW.text_body, NEW.from_email, NEW.from_name, NEW.reply_to_email, NEW.reply_to_name,
            NEW.is_tracked, NEW.start_at, NEW.local_time, NEW.time_zone)
        IS DISTINCT FROM
        (OLD.subject, OLD.html_body, OLD.text_body, OLD.from_email, OLD.from_name, OLD.reply_to_email, OLD.reply_to_name,
            OLD.is_tracked, OLD.start_at, OLD.local_time, OLD.time_zone)
    THEN
        RAISE EXCEPTION 'a campaign that was started cannot be changed' USING ERRCODE = 'PR070', COLUMN = 'status';
    END IF;
    RETURN NEW;
END
$$;

-- The counters are excluded because they change with every slice.
CREATE OR REPLACE TRIGGER campaigns_guard
    BEFORE UPDATE OF status, subject, html_body, text_body, from_email, from_name, reply_to_email, reply_to_name,
        is_tracked, start_at, local_time, time_zone ON campaigns
    FOR EACH ROW EXECUTE FUNCTION campaigns_guard();
