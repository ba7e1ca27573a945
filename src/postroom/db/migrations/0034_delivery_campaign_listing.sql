-- list_deliveries: the mails of one campaign, newest first, however much was accepted since. Mail of no campaign is not in
-- it and costs nothing.
CREATE INDEX deliveries_campaign_mail_idx ON deliveries (campaign_id, id) WHERE campaign_id IS NOT NULL;
