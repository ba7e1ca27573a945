-- Rights on the room's tables, for roles.sql. Run by the owner of the room, after `postroom migrate`.

-- Looking: the ledger without the letters. `delivery_payloads`, `inbox_messages` and `tokens` hold what people were
-- sent, one-time codes among it; `api_keys` holds hashes.
GRANT SELECT ON deliveries, delivery_recipients, attempts, dead_letters, suppressions, audit_log, claims, workers
    TO postroom_reader;

-- Functions that run as the owner are for the roles named here. A migration closes them to all others; a backup does not
-- carry that.
REVOKE ALL ON FUNCTION ensure_partitions, open_late_segment, detach_archived_partition, drop_archived_source,
    make_restored_table, attach_restored_table, drop_restored_table, make_erasure_key,
    erase_audit, request_token, consume_code FROM PUBLIC;

-- Archiving: months are made, taken out, dropped and brought back by functions that run as the owner, on such tables alone.
GRANT EXECUTE ON FUNCTION ensure_partitions, open_late_segment, detach_archived_partition, drop_archived_source,
    make_restored_table, attach_restored_table, drop_restored_table TO postroom_worker;
GRANT EXECUTE ON FUNCTION make_erasure_key, erase_audit TO postroom_worker, postroom_api;

-- Whoever works need not read the key of erased addresses; a worker checks no key of the API.
REVOKE ALL ON erasure_key FROM postroom_worker, postroom_api;
REVOKE ALL ON api_keys FROM postroom_worker;

-- Sending: what send(…) does in the caller's transaction, with the caller's rights.
GRANT INSERT ON deliveries, delivery_recipients, delivery_payloads TO postroom_sender;
GRANT SELECT (id, state, source, idempotency_key, request_fingerprint, idempotency_expires_at),
    UPDATE (idempotency_key, request_fingerprint, idempotency_expires_at) ON deliveries TO postroom_sender;
GRANT SELECT ON suppressions, workers TO postroom_sender;
GRANT USAGE ON SEQUENCE deliveries_id_seq TO postroom_sender;
