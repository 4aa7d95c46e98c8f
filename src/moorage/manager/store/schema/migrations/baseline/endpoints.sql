-- Names of models and adapters belong to projects, and still do for 30 days after `used_at`, so
-- that no project gets another one's clients. `used_at` is infinite while an endpoint has an
-- adapter of that name.
CREATE TABLE model_names (
    name     text PRIMARY KEY,
    project  text NOT NULL,
    used_at  timestamptz NOT NULL DEFAULT now()
);

-- `serving`: scaling, rollout, routing and the lifetime of replicas. `target_revision`: the
-- revision that all replicas should have. `canary_of`: the stable revision beside which the target
-- is tried. `shared_with`: projects, or `*` for all.
CREATE TABLE endpoints (
    id               uuid PRIMARY KEY,
    name             text NOT NULL,
    spec             jsonb NOT NULL,
    replicas         integer NOT NULL CHECK (replicas >= 0),
    revision         integer NOT NULL DEFAULT 1,
    created_by       text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    changed_at       timestamptz NOT NULL DEFAULT now(),
    deleted_at       timestamptz,
    owner            text NOT NULL,
    project          text NOT NULL DEFAULT 'default' CHECK (project <> ''),
    shared_with      text[] NOT NULL DEFAULT '{*}',
    isolated         boolean NOT NULL DEFAULT false,
    serving          jsonb NOT NULL DEFAULT '{}',
    target_revision  integer NOT NULL DEFAULT 1,
    scaled_at        timestamptz,
    scalings         integer NOT NULL DEFAULT 0,
    canary_of        integer,
    user_labels      jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(user_labels) = 'object'),
    CONSTRAINT endpoints_canary_differs CHECK (canary_of <> target_revision)
);

CREATE UNIQUE INDEX endpoints_live_name ON endpoints (name) WHERE deleted_at IS NULL;
CREATE INDEX endpoints_live ON endpoints (id) WHERE deleted_at IS NULL;
CREATE INDEX endpoints_autoscaled ON endpoints (name)
    WHERE deleted_at IS NULL AND serving ? 'autoscale';
CREATE INDEX endpoints_by_label ON endpoints USING gin (user_labels) WHERE user_labels <> '{}';
CREATE TRIGGER endpoints_change_adapters BEFORE UPDATE OF serving, deleted_at ON endpoints
    FOR EACH ROW WHEN (OLD.serving ? 'adapters' OR NEW.serving ? 'adapters')
    EXECUTE FUNCTION take_adapter_names();
CREATE TRIGGER endpoints_current_group BEFORE INSERT OR UPDATE OF spec, serving ON endpoints
    FOR EACH ROW EXECUTE FUNCTION endpoints_current_group();
CREATE TRIGGER endpoints_first_revision AFTER INSERT ON endpoints
    FOR EACH ROW EXECUTE FUNCTION add_first_revision();
CREATE TRIGGER endpoints_follow_target AFTER UPDATE OF target_revision ON endpoints
    FOR EACH ROW WHEN (OLD.target_revision <> NEW.target_revision) EXECUTE FUNCTION follow_target();
CREATE TRIGGER endpoints_free_name AFTER UPDATE OF deleted_at ON endpoints
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION free_model_name();
CREATE TRIGGER endpoints_take_adapters BEFORE INSERT ON endpoints
    FOR EACH ROW WHEN (NEW.serving ? 'adapters') EXECUTE FUNCTION take_adapter_names();
CREATE TRIGGER endpoints_take_name BEFORE INSERT ON endpoints
    FOR EACH ROW EXECUTE FUNCTION take_model_name();

-- A revision is what replicas run, and its `spec` never changes. `completed_at`: all replicas had
-- it and were ready. `failed_at`: it was rolled back. `served_before`: the revision that it
-- replaced or, if that one was never complete, the predecessor of that one. `target_since`: when it
-- last became the target.
CREATE TABLE endpoint_revisions (
    endpoint_id    uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE,
    revision       integer NOT NULL CHECK (revision > 0),
    spec           jsonb NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL,
    completed_at   timestamptz,
    failed_at      timestamptz,
    reason         text NOT NULL DEFAULT '',
    detail         text NOT NULL DEFAULT '',
    served_before  integer,
    target_since   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (endpoint_id, revision)
);

CREATE TRIGGER endpoint_revisions_current_group BEFORE INSERT ON endpoint_revisions
    FOR EACH ROW EXECUTE FUNCTION spec_current_group();
CREATE TRIGGER endpoint_revisions_keep
    BEFORE UPDATE OF endpoint_id, revision, spec ON endpoint_revisions
    FOR EACH ROW EXECUTE FUNCTION keep_revision();

ALTER TABLE endpoints ADD CONSTRAINT endpoints_target FOREIGN KEY (id, target_revision)
    REFERENCES endpoint_revisions DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE endpoints ADD CONSTRAINT endpoints_canary FOREIGN KEY (id, canary_of)
    REFERENCES endpoint_revisions;

-- Like idempotency_keys, for requests that created an endpoint.
CREATE TABLE endpoint_idempotency_keys (
    scope           text NOT NULL,
    key             text NOT NULL CHECK (key <> ''),
    request_digest  text NOT NULL CHECK (request_digest ~ '^[0-9a-f]{64}$'),
    endpoint_id     uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key)
);

CREATE INDEX endpoint_idempotency_keys_age ON endpoint_idempotency_keys (created_at);

CREATE TABLE scaling_decisions (
    endpoint_id    uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE,
    number         integer NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    from_replicas  integer NOT NULL,
    to_replicas    integer NOT NULL,
    rule           text NOT NULL,
    detail         text NOT NULL,
    inputs         jsonb NOT NULL,
    PRIMARY KEY (endpoint_id, number),
    CHECK (from_replicas <> to_replicas)
);

-- What a proxy reports about a model. `replicas`: requests in flight by session. `failing`,
-- `answering`: replicas that fail for every client, and replicas that answer.
CREATE TABLE model_loads (
    proxy_id        text NOT NULL REFERENCES proxy_reports ON DELETE CASCADE,
    model           text NOT NULL,
    in_flight       integer NOT NULL CHECK (in_flight >= 0),
    waiting         integer NOT NULL CHECK (waiting >= 0),
    requests        bigint NOT NULL CHECK (requests >= 0),
    active_at       timestamptz NOT NULL,
    first_token_ms  integer,
    replicas        jsonb NOT NULL DEFAULT '{}',
    changed_at      timestamptz NOT NULL DEFAULT now(),
    failing         jsonb NOT NULL DEFAULT '{}',
    answering       jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (proxy_id, model)
);

CREATE INDEX model_loads_by_model ON model_loads (model);
CREATE INDEX model_loads_changed ON model_loads (changed_at);

-- How the proxies currently share the limits of a subject.
CREATE TABLE limit_shares (
    subject   text PRIMARY KEY CHECK (subject ~ '^(key|project|model|budget)/'),
    revision  bigint NOT NULL,
    shares    jsonb NOT NULL
);
