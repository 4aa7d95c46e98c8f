-- `requeued_from`: the last attempt of the previous run, so that failures in earlier runs do not
-- exclude any agent. `not_before`: the end of the backoff. `bypassed`: how often the session was
-- overtaken while it was first in the queue. `isolated`: its processes do not run as the agent's
-- user.
--
-- `adopted_from`: the session whose run it shares. `request_hash`: equal for sessions that may
-- share one. `files`: outputs for later steps of its pipeline. `removed_at`: from then on, nobody
-- sees the session, and retention deletes it. `drain_generation`: route tables with a greater
-- generation mark the replica as draining.
CREATE TABLE sessions (
    id                 uuid PRIMARY KEY,
    name               text NOT NULL,
    type               text NOT NULL
        CHECK (type IN ('interactive', 'batch', 'inference', 'system')),
    status             text NOT NULL
        CHECK (status IN ('PENDING', 'SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING',
            'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR')),
    result             text NOT NULL DEFAULT 'UNDEFINED'
        CHECK (result IN ('UNDEFINED', 'SUCCESS', 'FAILED')),
    reason             text NOT NULL DEFAULT '',
    detail             text NOT NULL DEFAULT '',
    resource_group     text NOT NULL REFERENCES resource_groups,
    priority           integer NOT NULL CHECK (priority BETWEEN 0 AND 100),
    spec               jsonb NOT NULL,
    slots              jsonb NOT NULL,
    endpoint_id        uuid REFERENCES endpoints,
    attempt            integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    revision           integer NOT NULL DEFAULT 1,
    created_by         text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    status_since       timestamptz NOT NULL DEFAULT now(),
    deadline_at        timestamptz,
    ready_at           timestamptz,
    retries            integer NOT NULL DEFAULT 0,
    hold               jsonb,
    requeues           integer NOT NULL DEFAULT 0,
    requeued_from      integer NOT NULL DEFAULT 0,
    not_before         timestamptz,
    bypassed           integer NOT NULL DEFAULT 0 CHECK (bypassed >= 0),
    owner              text NOT NULL,
    project            text NOT NULL DEFAULT 'default' CHECK (project <> ''),
    starts_at          timestamptz,
    dependencies       integer NOT NULL DEFAULT 0 CHECK (dependencies >= 0),
    isolated           boolean NOT NULL DEFAULT false,
    endpoint_revision  integer CHECK (endpoint_revision > 0),
    draining_since     timestamptz,
    drain_reason       text NOT NULL DEFAULT '',
    drain_generation   bigint,
    template           text,
    user_labels        jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(user_labels) = 'object'),
    request_hash       text CHECK (request_hash ~ '^[0-9a-f]{64}$'),
    adopted_from       uuid REFERENCES sessions ON DELETE SET NULL,
    files              jsonb,
    removed_at         timestamptz,
    traceparent        text,
    CONSTRAINT runs_are_attempts CHECK (
        requeues >= 0 AND requeued_from >= 0 AND requeued_from < attempt
    ),
    CONSTRAINT only_waiting_pauses CHECK (not_before IS NULL OR status = 'PENDING'),
    CONSTRAINT only_batch_starts_later CHECK (starts_at IS NULL OR type = 'batch'),
    CONSTRAINT only_batch_is_adopted CHECK (adopted_from IS NULL OR type = 'batch'),
    CONSTRAINT adopted_by_itself CHECK (adopted_from <> id),
    CONSTRAINT sessions_removed_have_ended CHECK (
        removed_at IS NULL OR status IN ('TERMINATED', 'CANCELLED', 'ERROR')
    ),
    CONSTRAINT system_sessions_hold_no_devices CHECK (
        type <> 'system'
        OR NOT jsonb_path_exists(slots, '$.keyvalue() ? (@.key like_regex "[.]" && @.value > 0)')
    )
);

CREATE INDEX sessions_deadline ON sessions (deadline_at)
    WHERE deadline_at IS NOT NULL AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_newest ON sessions (created_at DESC, id DESC);
CREATE INDEX sessions_by_name ON sessions (name, created_at DESC);
CREATE INDEX sessions_by_endpoint ON sessions (endpoint_id, created_at DESC)
    WHERE endpoint_id IS NOT NULL;
CREATE INDEX sessions_live_newest ON sessions (created_at DESC, id DESC)
    WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_pending_owner ON sessions (owner) WHERE status = 'PENDING';
CREATE INDEX sessions_pending_project ON sessions (project) WHERE status = 'PENDING';
CREATE INDEX sessions_dependent ON sessions (id) WHERE status = 'PENDING' AND dependencies > 0;
CREATE INDEX sessions_retried ON sessions (id)
    WHERE status = 'PENDING' AND attempt > requeued_from + 1;
CREATE INDEX sessions_live_replicas ON sessions (endpoint_id)
    WHERE endpoint_id IS NOT NULL AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_serving ON sessions (id)
    WHERE status = 'RUNNING' AND type = 'inference' AND endpoint_id IS NULL;
CREATE INDEX sessions_begin ON sessions (resource_group, greatest(not_before, starts_at))
    WHERE status = 'PENDING' AND (not_before IS NOT NULL OR starts_at IS NOT NULL);
CREATE INDEX sessions_pending ON sessions (resource_group, created_at, id) WHERE status = 'PENDING';
CREATE INDEX sessions_running ON sessions (resource_group, id) WHERE status = 'RUNNING';
CREATE UNIQUE INDEX sessions_live_name ON sessions (project, name)
    WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_moving ON sessions (id)
    WHERE status IN ('SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'TERMINATING');
CREATE INDEX sessions_of_site ON sessions (resource_group, ready_at DESC)
    WHERE spec ? 'queue_timeout_s' AND ready_at IS NOT NULL;
CREATE INDEX sessions_by_label ON sessions USING gin (user_labels) WHERE user_labels <> '{}';
CREATE INDEX sessions_of_project ON sessions (project, created_at DESC, id DESC);
-- No two equal sessions that others may share run at once: the index decides between equal requests
-- that arrive at the same moment.
CREATE UNIQUE INDEX sessions_shared_run ON sessions (project, request_hash)
    WHERE request_hash IS NOT NULL AND adopted_from IS NULL 
        AND (spec ->> 'reuse') IN ('live', 'both')
        AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR', 'TERMINATING');
CREATE INDEX sessions_by_request ON sessions (project, request_hash, created_at)
    WHERE request_hash IS NOT NULL AND adopted_from IS NULL;
CREATE INDEX sessions_adopted ON sessions (adopted_from) WHERE adopted_from IS NOT NULL;
CREATE INDEX sessions_live_jobs ON sessions (id)
    WHERE status IN ('SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING', 'TERMINATING')
        AND spec ? 'job';
CREATE INDEX sessions_of_group ON sessions (resource_group);
CREATE INDEX sessions_interactive ON sessions (resource_group)
    WHERE type IN ('interactive', 'system') AND status = 'RUNNING';
CREATE INDEX sessions_with_idle ON sessions (id)
    WHERE type IN ('interactive', 'system') AND status = 'RUNNING' AND spec ? 'idle';
CREATE INDEX sessions_of_site_jobs ON sessions (resource_group, ready_at DESC)
    WHERE spec ? 'job' AND ready_at IS NOT NULL;
CREATE TRIGGER sessions_charge_lost AFTER UPDATE OF status, attempt ON sessions
    FOR EACH ROW WHEN (
        OLD.status IN ('RUNNING', 'TERMINATING', 'CREATING')
        AND (NEW.status IN ('TERMINATED', 'CANCELLED', 'ERROR') OR NEW.attempt <> OLD.attempt)
    ) EXECUTE FUNCTION sessions_charge_lost();
CREATE TRIGGER sessions_current_group BEFORE INSERT ON sessions
    FOR EACH ROW EXECUTE FUNCTION sessions_current_group();
CREATE TRIGGER sessions_free_name AFTER UPDATE OF status ON sessions
    FOR EACH ROW WHEN (
        NEW.type = 'inference' AND NEW.endpoint_id IS NULL
        AND OLD.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
        AND NEW.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
    ) EXECUTE FUNCTION free_model_name();
CREATE TRIGGER sessions_take_name BEFORE INSERT ON sessions
    FOR EACH ROW WHEN (NEW.type = 'inference' AND NEW.endpoint_id IS NULL)
    EXECUTE FUNCTION take_model_name();

CREATE TABLE session_history (
    session_id   uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    revision     integer NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    event        text NOT NULL,
    from_status  text,
    to_status    text NOT NULL,
    reason       text NOT NULL DEFAULT '',
    actor        text NOT NULL,
    detail       text NOT NULL DEFAULT '',
    PRIMARY KEY (session_id, revision)
);

-- The reference prevents the deletion of a session to which another one still refers. `adopted`:
-- the session shares the run of the other one, so the scheduler does not place it.
CREATE TABLE session_dependencies (
    session_id  uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    depends_on  uuid NOT NULL REFERENCES sessions,
    condition   text NOT NULL CHECK (condition IN ('success', 'any', 'failure', 'adopted')),
    PRIMARY KEY (session_id, depends_on, condition),
    CHECK (session_id <> depends_on)
);

CREATE INDEX session_dependents ON session_dependencies (depends_on);

-- Key pairs of clusters are stored apart from sessions, so that no listing can show them.
CREATE TABLE session_keys (
    session_id   uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    private_key  text NOT NULL,
    public_key   text NOT NULL
);

-- Counters of observed seconds rather than times, so that no clock jump ends a session.
CREATE TABLE session_idle (
    session_id  uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    attempt     integer NOT NULL,
    observed_s  float8 NOT NULL CHECK (observed_s >= 0),
    traffic_s   float8 NOT NULL,
    sightings   bigint NOT NULL,
    warned_s    float8,
    extended_s  float8 NOT NULL DEFAULT 0,
    extensions  integer NOT NULL DEFAULT 0 CHECK (extensions >= 0),
    remaining   jsonb NOT NULL,
    criterion   text NOT NULL DEFAULT '',
    ends_in_s   float8,
    at          timestamptz NOT NULL,
    CHECK (traffic_s <= observed_s)
);

CREATE TABLE session_traffic (
    session_id  uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    sightings   bigint NOT NULL,
    at          timestamptz NOT NULL
);

-- The row is written by the statement that creates the session, so that a manager that dies leaves
-- either both or neither. `scope`: the id of the API key.
CREATE TABLE idempotency_keys (
    scope           text NOT NULL,
    key             text NOT NULL CHECK (key <> ''),
    request_digest  text NOT NULL,
    session_id      uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key),
    CONSTRAINT request_digest_is_sha256 CHECK (request_digest ~ '^[0-9a-f]{64}$')
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
CREATE INDEX idempotency_keys_session ON idempotency_keys (session_id);

-- `user_name`, `key_id`: who created the token, and with which key. The token opens its service
-- port as long as they may. NULL means unknown.
CREATE TABLE access_tokens (
    id          uuid PRIMARY KEY,
    session_id  uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    app         text NOT NULL,
    prefix      text NOT NULL,
    sha256      text NOT NULL UNIQUE CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    revoked_by  text NOT NULL DEFAULT '',
    user_name   text,
    key_id      uuid,
    CONSTRAINT access_tokens_end CHECK (expires_at > created_at)
);

CREATE INDEX access_tokens_by_session ON access_tokens (session_id, app) WHERE revoked_at IS NULL;

-- Versions of templates, of a project or, with project '', for all. `isolated`: someone who is not
-- an administrator wrote the version, or the one on which it is based.
CREATE TABLE templates (
    project     text NOT NULL,
    name        text NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    body        jsonb NOT NULL,
    bases       text[] NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    deleted_at  timestamptz,
    isolated    boolean NOT NULL DEFAULT true,
    PRIMARY KEY (project, name, version)
);

CREATE TRIGGER templates_keep_versions BEFORE UPDATE ON templates
    FOR EACH ROW EXECUTE FUNCTION templates_keep_versions();
