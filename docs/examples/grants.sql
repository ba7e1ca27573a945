-- Rights on the room's tables and functions, for roles.sql. Run by the owner of the room, after every `postroom migrate`
-- and after a restore; it may be run any number of times.

-- A room that was migrated before it had these roles.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA postroom TO postroom_worker, postroom_api;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA postroom TO postroom_worker, postroom_api;
-- These are no counters: worker and API only read them.
REVOKE USAGE ON SEQUENCE room_marks, fingerprint_key_high, fingerprint_key_low, event_lock_key
    FROM postroom_worker, postroom_api;

-- The audit log is append-only, and only the owner migrates.
REVOKE UPDATE, DELETE ON audit_log FROM postroom_worker, postroom_api;
REVOKE INSERT, UPDATE, DELETE ON migrations FROM postroom_worker, postroom_api;

-- A worker checks no API key. The key of erased addresses is only used by functions.
REVOKE ALL ON api_keys, operators, sign_in_codes, dashboard_sessions FROM postroom_worker;
REVOKE ALL ON erasure_key FROM postroom_worker, postroom_api;

-- A worker continues erasures that were requested, and requests none: an erasure replaces an address in the audit log.
REVOKE INSERT, UPDATE, DELETE ON erasures FROM postroom_worker;
GRANT UPDATE (state, finished_at, address, delivery_ids, last_file_id, counts, waits_for) ON erasures TO postroom_worker;

-- Functions that run as the owner. `postroom migrate` revokes them from PUBLIC; each role gets those that it needs.
GRANT EXECUTE ON FUNCTION ensure_partitions, open_late_segment, detach_archived_partition,
    drop_archived_source, make_restored_table, attach_restored_table, drop_restored_table TO postroom_worker;
GRANT EXECUTE ON FUNCTION make_erasure_key, erase_audit, erased_address, archive_place, verify_room_marks, lock_room_marks,
    send TO postroom_worker, postroom_api;

-- Reading: the ledger without content. Headers, bodies, subjects, tokens, keys and credentials are not readable.
GRANT SELECT ON deliveries, other_recipients, delivery_recipients, attempts, delivery_steps, all_steps, dead_letters, claims, workers,
    suppressions, bounces,
    unsubscriptions, audit_log, stat_deltas, stats_hourly, stats_dimension_hours, stats_cursor, email_queue, send_logs, bounce_list, unsubscribe_list, bounced_addresses, unsubscribed_addresses TO postroom_reader;

-- Sending: send(…) runs as the owner, so an application needs no right on any table.
GRANT EXECUTE ON FUNCTION send TO postroom_sender;
GRANT INSERT ON email_queue TO postroom_sender;
