-- How far into the future a campaign's mail is moved: out of every worker's reach while the campaign is paused, otherwise
-- not at all. Resuming the campaign moves the mail back (release_mail).
CREATE OR REPLACE FUNCTION campaign_hold(p_campaign_id bigint) RETURNS interval
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM campaigns WHERE id = p_campaign_id AND status = 'paused')
        THEN interval '1000 years' ELSE interval '0' END
$$;
