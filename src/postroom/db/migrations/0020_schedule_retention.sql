-- delete_old_events: events that ended long ago
CREATE INDEX scheduled_events_ended_idx ON scheduled_events (target_timestamp_utc)
    WHERE status IN ('COMPLETED', 'FAILED');
