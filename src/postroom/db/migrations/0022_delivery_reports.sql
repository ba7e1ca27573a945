-- Delivery: the ledger by sender account and by campaign.

-- send_logs by sender_account_id and by campaign_id, with a time: a summary of every 32 blocks, as attempts_ledger_idx. It
-- costs a mail nothing; autovacuum makes the summaries.
CREATE INDEX attempts_reports_idx ON attempts USING brin (
    finished_at,
    sender_account_id int8_minmax_multi_ops, -- not Bloom, which ignores a number that is not written as a bigint
    (coalesce(campaign_id::text, tags ->> 'campaign_id')) text_bloom_ops
) WITH (pages_per_range = 32, autosummarize = on);
