-- list_latest_events, list_soonest_events by status or without a filter, and delete_old_events. What is PENDING is listed
-- by scheduled_events_due_idx; with it in this index, planners would take this larger one for the claim.
CREATE INDEX scheduled_events_status_idx ON scheduled_events (status, target_timestamp_utc, id) WHERE status <> 'PENDING';
