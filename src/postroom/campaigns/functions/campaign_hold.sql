-- The interval by which a campaign's mail is moved into the future: out of reach of workers while the campaign is
-- paused, otherwise zero. Resuming the campaign moves the mail back (release_mail). A statement may read the
-- status from before a pause or resume that it waited for: the feeder finds such stray mail (unfinished_campaigns).
CREATE OR REPLACE FUNCTION campaign_hold(p_campaign_id bigint) RETURNS interval
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM campaigns WHERE id = p_campaign_id AND status = 'paused')
        THEN interval '1000 years' ELSE interval '0' END
$$;
