-- In which envelope an endpoint gets its events: Standard Webhooks' own, or CloudEvents 1.0.
ALTER TABLE webhook_endpoints
    ADD COLUMN format text NOT NULL DEFAULT 'standard',
    ADD CONSTRAINT webhook_endpoints_format CHECK (format IN ('standard', 'cloudevents'));
