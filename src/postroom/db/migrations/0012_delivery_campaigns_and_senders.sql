-- Which campaign a delivery belongs to, and which sender account carries it. No foreign keys: the queue's rows and the
-- ledger outlive accounts, and campaigns outlive both.

ALTER TABLE deliveries
    ADD COLUMN campaign_id       bigint, -- its content comes from the campaign, and from the payload's variables
    ADD COLUMN sender_account_id bigint; -- the account of the last claim

ALTER TABLE attempts
    ADD COLUMN campaign_id       bigint,
    ADD COLUMN sender_account_id bigint,
    ADD COLUMN domain            text;   -- lower case, of the first recipient
