-- Schedule: people, and the messages they get at their local time.

-- People who get greetings at their local time.
CREATE TABLE users (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    version         integer     NOT NULL DEFAULT 1, -- counts changes of the person
    planned_version integer     NOT NULL DEFAULT 0, -- the version that events were planned for; the sweep plans if it is behind
    is_unplannable  boolean     NOT NULL DEFAULT false, -- something of theirs cannot be planned; see `postroom doctor`
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    unplanned_since timestamptz, -- waits to be planned since then; NULL: planned. Set by users_guard, user_occasions_guard
    date_of_birth   date        NOT NULL,
    timezone        text        NOT NULL,
    first_name      text        NOT NULL,
    last_name       text        NOT NULL,
    email           text,
    webhook_url     text,
    locale          text, -- of mail to the person, such as fr or pt-BR; NULL: English
    template        text, -- of the person's birthday greeting by mail; NULL: birthday

    CONSTRAINT users_first_name_said CHECK (first_name ~ '\S' AND length(first_name) <= 100),
    CONSTRAINT users_last_name_said CHECK (last_name ~ '\S' AND length(last_name) <= 100),
    CONSTRAINT users_date_of_birth_past CHECK (date_of_birth < CURRENT_DATE),
    -- Python cannot read a day before the year 1, and one such row stopped every sweep; '-infinity' reads as the first day.
    CONSTRAINT users_date_of_birth_readable CHECK (date_of_birth >= '0001-01-01' OR date_of_birth = '-infinity'),
    CONSTRAINT users_locale_form CHECK (locale ~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$'),
    CONSTRAINT users_template_form CHECK (template ~ '^[a-z0-9][a-z0-9._-]{0,99}$')
);

-- list_users: newest first
CREATE INDEX users_created_idx ON users (created_at, id);

-- list_addressed_users
CREATE INDEX users_email_idx ON users (lower(email)) WHERE email IS NOT NULL;

-- lock_unplanned_users: people changed by plain SQL
CREATE INDEX users_unplanned_idx ON users (id) WHERE planned_version <> version;

-- measure_schedule
CREATE INDEX users_unplannable_idx ON users (id) WHERE is_unplannable;

-- Messages a person gets besides the birthday greeting. The kind defines the fields of the rule; see schedule/kinds.py.
CREATE TABLE user_occasions (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id    uuid        NOT NULL REFERENCES users ON DELETE CASCADE,
    is_over    boolean     NOT NULL DEFAULT false, -- nothing is left to plan: a sent reminder, or a rule whose last day is past
    created_at timestamptz NOT NULL DEFAULT now(),
    event_type text        NOT NULL,
    message    text        NOT NULL,
    rule       jsonb       NOT NULL,
    template   text, -- of its mail; NULL: the message is subject and text

    CONSTRAINT user_occasions_kind_named CHECK (event_type ~ '^[A-Z][A-Z_]{0,49}$'),
    -- The birthday is planned from date_of_birth; as an occasion it would be planned twice.
    CONSTRAINT user_occasions_not_birthday CHECK (event_type <> 'BIRTHDAY'),
    CONSTRAINT user_occasions_template_form CHECK (template ~ '^[a-z0-9][a-z0-9._-]{0,99}$')
);

-- list_occasions, and the cascade from users
CREATE INDEX user_occasions_user_idx ON user_occasions (user_id);

CREATE TYPE scheduled_event_status AS ENUM (
    'PENDING',    -- planned; claimed when target_timestamp_utc has come
    'PROCESSING', -- PENDING → PROCESSING: claimed, and handed over as a delivery (→ PENDING: the lease expired before that)
    'COMPLETED',  -- PROCESSING → COMPLETED: the delivery was sent (FAILED → COMPLETED: redriven, then sent)
    'FAILED'      -- PROCESSING → FAILED: the delivery was not sent, or the person has no address
);

-- Messages to people at their local time: planned, due and past.
CREATE TABLE scheduled_events (
    id                     uuid                   PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id                uuid                   NOT NULL REFERENCES users ON DELETE CASCADE,
    event_type             text                   NOT NULL DEFAULT 'BIRTHDAY',
    status                 scheduled_event_status NOT NULL DEFAULT 'PENDING',
    target_timestamp_utc   timestamptz            NOT NULL,
    target_timestamp_local timestamp              NOT NULL, -- the person's local time at the target
    target_timezone        text                   NOT NULL,
    executed_at            timestamptz,
    failure_reason         text,
    retry_count            smallint               NOT NULL DEFAULT 0,
    version                integer                NOT NULL DEFAULT 1,
    idempotency_key        text                   NOT NULL,
    delivery_payload       jsonb                  NOT NULL,
    created_at             timestamptz            NOT NULL DEFAULT now(),
    updated_at             timestamptz            NOT NULL DEFAULT now(),
    planned_at             timestamptz            NOT NULL DEFAULT now(), -- when this target was set: it cannot be late before
    late_by                interval,                        -- set when it was handed over later than it should have been
    claim_id               uuid,                            -- fences a worker whose lease has expired
    lease_expires_at       timestamptz,
    delivery_id            bigint,                          -- no foreign key: deliveries are deleted sooner
    occasion_id            uuid                   REFERENCES user_occasions ON DELETE CASCADE,
    moved_from             timestamp, -- the local time of its rule, if a person moved it; planning keeps a moved target

    CONSTRAINT scheduled_events_key_once UNIQUE (idempotency_key),
    CONSTRAINT scheduled_events_key_length CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    CONSTRAINT scheduled_events_kind_named CHECK (event_type ~ '^[A-Z][A-Z_]{0,49}$'),
    CONSTRAINT scheduled_events_retries_counted CHECK (retry_count BETWEEN 0 AND 3),
    CONSTRAINT scheduled_events_completed_has_time CHECK (status <> 'COMPLETED' OR executed_at IS NOT NULL),
    CONSTRAINT scheduled_events_failed_has_reason CHECK (status <> 'FAILED' OR failure_reason IS NOT NULL),
    CONSTRAINT scheduled_events_lease_while_processing CHECK ((status = 'PROCESSING') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT scheduled_events_claim_while_processing CHECK (claim_id IS NULL OR status = 'PROCESSING'),
    -- The years that Python can read, with a day's margin on both sides for time zones.
    CONSTRAINT scheduled_events_target_readable CHECK (
        target_timestamp_utc >= '0001-01-02 00:00+00' AND target_timestamp_utc < '9999-12-31 00:00+00'
        AND target_timestamp_local >= '0001-01-02' AND target_timestamp_local < '9999-12-31')
) WITH (
    fillfactor = 90,
    -- Each event leaves dead entries at the end of the index where every claim begins. A share of a very large table
    -- would be millions of them; a fixed number keeps a claim as cheap as in a small table.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000
);

-- claim_due, find_next_due; list_latest_events and list_soonest_events of status PENDING
CREATE INDEX scheduled_events_due_idx ON scheduled_events (target_timestamp_utc) WHERE status = 'PENDING';

-- one planned event per person and occasion; lock_unscheduled_users finds people without one
CREATE UNIQUE INDEX scheduled_events_pending_idx ON scheduled_events (user_id, event_type, occasion_id)
    NULLS NOT DISTINCT WHERE status = 'PENDING';

-- list_latest_events, list_soonest_events by status or without a filter, and delete_old_events. PENDING events are
-- listed by scheduled_events_due_idx; if they were in this index, the planner would choose this larger one for the
-- claim.
CREATE INDEX scheduled_events_status_idx ON scheduled_events (status, target_timestamp_utc, id) WHERE status <> 'PENDING';

-- list_latest_events, list_soonest_events by kind
CREATE INDEX scheduled_events_kind_idx ON scheduled_events (event_type, status, target_timestamp_utc, id);

-- list_latest_events, list_soonest_events of late events
CREATE INDEX scheduled_events_late_idx ON scheduled_events (target_timestamp_utc, id) WHERE late_by IS NOT NULL;

-- list_latest_events and list_soonest_events of a person, list_user_events, and the cascade from users
CREATE INDEX scheduled_events_user_idx ON scheduled_events (user_id, target_timestamp_utc);

-- the cascade from user_occasions
CREATE INDEX scheduled_events_occasion_idx ON scheduled_events (occasion_id) WHERE occasion_id IS NOT NULL;

-- recover_events: leases that expired
CREATE INDEX scheduled_events_lease_idx ON scheduled_events (lease_expires_at) WHERE status = 'PROCESSING';

-- settle_scheduled_event: the event of a delivery that ended
CREATE INDEX scheduled_events_delivery_idx ON scheduled_events (delivery_id) WHERE delivery_id IS NOT NULL;

-- The time zone data and settings that the targets were computed with; when they change, all targets are computed again.
CREATE TABLE schedule_state (
    is_only     boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    recorded_at timestamptz NOT NULL DEFAULT now(),
    basis       text        NOT NULL
);
