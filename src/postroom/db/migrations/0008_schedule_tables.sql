-- People, and what they are sent at a time of their own clock.

CREATE TYPE scheduled_event_status AS ENUM (
    'PENDING',    -- planned; claimed when target_timestamp_utc has come
    'PROCESSING', -- PENDING → PROCESSING: claimed, and handed over as a delivery (→ PENDING: the lease ran out before that)
    'COMPLETED',  -- PROCESSING → COMPLETED: the delivery was sent (FAILED → COMPLETED: brought back, then sent)
    'FAILED'      -- PROCESSING → FAILED: the delivery was not sent, or there was nowhere to send it
);

-- People who get greetings at their local time.
CREATE TABLE users (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    version         integer     NOT NULL DEFAULT 1, -- counts changes of the person
    planned_version integer     NOT NULL DEFAULT 0, -- the version that the events were planned for; behind: the sweep plans
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
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
    CONSTRAINT users_locale_form CHECK (locale ~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$'),
    CONSTRAINT users_template_form CHECK (template ~ '^[a-z0-9][a-z0-9._-]{0,99}$')
);

-- What a person is sent besides the birthday greeting. The rule's fields belong to the kind; see schedule/kinds.py.
CREATE TABLE user_occasions (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id    uuid        NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    event_type text        NOT NULL,
    message    text        NOT NULL,
    rule       jsonb       NOT NULL,
    template   text, -- of its mail; NULL: the message is subject and text

    CONSTRAINT user_occasions_kind_named CHECK (event_type ~ '^[A-Z][A-Z_]{0,49}$'),
    CONSTRAINT user_occasions_template_form CHECK (template ~ '^[a-z0-9][a-z0-9._-]{0,99}$')
);

-- Messages to people at a time of their own clock: planned, due and past.
CREATE TABLE scheduled_events (
    id                     uuid                   PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id                uuid                   NOT NULL REFERENCES users ON DELETE CASCADE,
    event_type             text                   NOT NULL DEFAULT 'BIRTHDAY',
    status                 scheduled_event_status NOT NULL DEFAULT 'PENDING',
    target_timestamp_utc   timestamptz            NOT NULL,
    target_timestamp_local timestamp              NOT NULL, -- what the person's clock shows then
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
    claim_id               uuid,                            -- fences a worker whose lease ran out
    lease_expires_at       timestamptz,
    delivery_id            bigint,                          -- no foreign key: deliveries are forgotten sooner
    occasion_id            uuid                   REFERENCES user_occasions ON DELETE CASCADE,
    moved_from             timestamp, -- the local time of its rule, if it was moved by hand; planning keeps a moved target

    CONSTRAINT scheduled_events_key_once UNIQUE (idempotency_key),
    CONSTRAINT scheduled_events_key_length CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    CONSTRAINT scheduled_events_kind_named CHECK (event_type ~ '^[A-Z][A-Z_]{0,49}$'),
    CONSTRAINT scheduled_events_retries_counted CHECK (retry_count BETWEEN 0 AND 3),
    CONSTRAINT scheduled_events_completed_has_time CHECK (status <> 'COMPLETED' OR executed_at IS NOT NULL),
    CONSTRAINT scheduled_events_failed_has_reason CHECK (status <> 'FAILED' OR failure_reason IS NOT NULL),
    CONSTRAINT scheduled_events_lease_while_processing CHECK ((status = 'PROCESSING') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT scheduled_events_claim_while_processing CHECK (claim_id IS NULL OR status = 'PROCESSING')
) WITH (fillfactor = 90);

-- What the planned targets were computed with; when it changes, all of them are computed again.
CREATE TABLE schedule_state (
    is_only     boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    recorded_at timestamptz NOT NULL DEFAULT now(),
    basis       text        NOT NULL
);

-- ── Indexes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- list_users: newest first
CREATE INDEX users_created_idx ON users (created_at, id);

-- lock_unplanned_users: people changed by plain SQL
CREATE INDEX users_unplanned_idx ON users (id) WHERE planned_version <> version;

-- list_occasions, and the cascade from users
CREATE INDEX user_occasions_user_idx ON user_occasions (user_id);

-- claim_due, find_next_due; list_latest_events and list_soonest_events of what is PENDING
CREATE INDEX scheduled_events_due_idx ON scheduled_events (target_timestamp_utc) WHERE status = 'PENDING';

-- one planned event per person and occasion; lock_unscheduled_users asks it who has none
CREATE UNIQUE INDEX scheduled_events_pending_idx ON scheduled_events (user_id, event_type, occasion_id)
    NULLS NOT DISTINCT WHERE status = 'PENDING';

-- list_latest_events, list_soonest_events by kind
CREATE INDEX scheduled_events_kind_idx ON scheduled_events (event_type, status, target_timestamp_utc, id);

-- list_latest_events, list_soonest_events of what was late
CREATE INDEX scheduled_events_late_idx ON scheduled_events (target_timestamp_utc, id) WHERE late_by IS NOT NULL;

-- list_latest_events and list_soonest_events of a person, list_user_events, and the cascade from users
CREATE INDEX scheduled_events_user_idx ON scheduled_events (user_id, target_timestamp_utc);

-- the cascade from user_occasions
CREATE INDEX scheduled_events_occasion_idx ON scheduled_events (occasion_id) WHERE occasion_id IS NOT NULL;

-- recover_events: leases that ran out
CREATE INDEX scheduled_events_lease_idx ON scheduled_events (lease_expires_at) WHERE status = 'PROCESSING';

-- settle_scheduled_event: the event of a delivery that ended
CREATE INDEX scheduled_events_delivery_idx ON scheduled_events (delivery_id) WHERE delivery_id IS NOT NULL;
