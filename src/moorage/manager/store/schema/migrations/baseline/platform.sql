-- `identity` and `stream`: all managers accept the same reports. `manager`: the manager that
-- registered the stream. `detached_stream`: that stream, if it has ended.
--
-- `leaving`: the agent itself reports that it is draining or shutting down. `draining`: no new
-- kernels, because it is leaving or cordoned. `restored_at`: a backup that contains the agent was
-- restored, and the agent has not reported since. `unknown_kernels`: the kernels that it runs but
-- the database does not know. `ready`: it gets new work.
--
-- `assigned_group` overrides `configured_group`, which the agent names. `seen_before`, `back_at`:
-- its last contact before a silence, and its return. `doubtful_jobs`: jobs that a site may bill for
-- although no kernel is known to run in them. `undialed`: proxies to which it has no connection,
-- with the reason.
CREATE TABLE agents (
    id                 text PRIMARY KEY,
    resource_group     text NOT NULL,
    status             text NOT NULL CHECK (status IN ('ALIVE', 'SUSPECT', 'LOST')),
    incarnation        text NOT NULL,
    address            text NOT NULL,
    version            text NOT NULL,
    arch               text NOT NULL,
    runtimes           text[] NOT NULL,
    engines            text[] NOT NULL,
    labels             jsonb NOT NULL DEFAULT '{}',
    leaving            boolean NOT NULL DEFAULT false,
    connected_at       timestamptz NOT NULL DEFAULT now(),
    last_seen          timestamptz NOT NULL DEFAULT now(),
    identity           text NOT NULL DEFAULT '',
    stream             bigint NOT NULL DEFAULT 0 CHECK (stream >= 0),
    max_kernels        integer CHECK (max_kernels > 0),
    share_quantum      integer NOT NULL DEFAULT 1 CHECK (share_quantum BETWEEN 1 AND 1000),
    share_minimum      integer NOT NULL DEFAULT 1 CHECK (share_minimum BETWEEN 1 AND 1000),
    cordon             text NOT NULL DEFAULT '' CHECK (cordon IN ('', 'cordon', 'drain')),
    cordoned_by        text NOT NULL DEFAULT '',
    cordoned_at        timestamptz,
    stop_at            timestamptz,
    draining           boolean NOT NULL GENERATED ALWAYS AS (leaving OR cordon <> '') STORED,
    report_interval_s  float8 NOT NULL DEFAULT 0,
    silence_grace_s    jsonb NOT NULL DEFAULT '{}',
    manager            uuid,
    detached_stream    bigint,
    lease_runtimes     text[] NOT NULL DEFAULT '{}',
    restored_at        timestamptz,
    refuses_orders     boolean NOT NULL DEFAULT false,
    unknown_kernels    jsonb NOT NULL DEFAULT '[]',
    ready              boolean NOT NULL
        GENERATED ALWAYS AS (
            restored_at IS NULL AND NOT refuses_orders AND unknown_kernels = '[]'
        ) STORED,
    assigned_group     text REFERENCES resource_groups,
    doubtful_jobs      jsonb NOT NULL DEFAULT '[]',
    seen_before        timestamptz,
    back_at            timestamptz,
    site_nodes         jsonb NOT NULL DEFAULT '[]',
    configured_group   text,
    direct_address     text NOT NULL DEFAULT '',
    reach_why          text NOT NULL DEFAULT '',
    undialed           jsonb NOT NULL DEFAULT '{}',
    not_ready          text NOT NULL DEFAULT '',
    CONSTRAINT only_a_drain_stops CHECK (stop_at IS NULL OR cordon = 'drain'),
    CONSTRAINT agents_group_exists FOREIGN KEY (resource_group) REFERENCES resource_groups
);

CREATE INDEX agents_not_ready ON agents (id) WHERE NOT ready;
CREATE INDEX agents_silent ON agents (id) WHERE status <> 'ALIVE';
CREATE INDEX agents_stopping ON agents (stop_at) WHERE cordon = 'drain';
CREATE INDEX agents_of_group ON agents (resource_group);
CREATE TRIGGER agents_change_group BEFORE UPDATE OF resource_group ON agents
    FOR EACH ROW WHEN (NEW.resource_group IS DISTINCT FROM OLD.resource_group)
    EXECUTE FUNCTION agents_make_group();
CREATE TRIGGER agents_make_group BEFORE INSERT ON agents
    FOR EACH ROW EXECUTE FUNCTION agents_make_group();
CREATE TRIGGER agents_note_return BEFORE UPDATE OF status ON agents
    FOR EACH ROW WHEN (NEW.status = 'ALIVE' AND OLD.status <> 'ALIVE')
    EXECUTE FUNCTION agents_note_return();
CREATE TRIGGER lost_only_from_suspect BEFORE UPDATE OF status ON agents
    FOR EACH ROW WHEN (OLD.status = 'ALIVE' AND NEW.status = 'LOST')
    EXECUTE FUNCTION refuse_sudden_loss();

-- Administrative changes of agents.
CREATE TABLE agent_history (
    agent_id  text NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    event     text NOT NULL,
    actor     text NOT NULL,
    detail    text NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, at)
);

-- `used` can never exceed `capacity`, no matter what the code does.
CREATE TABLE agent_slots (
    agent_id          text NOT NULL REFERENCES agents ON DELETE CASCADE,
    slot              text NOT NULL,
    device_id         text NOT NULL DEFAULT '',
    model             text NOT NULL DEFAULT '',
    memory_bytes      bigint NOT NULL DEFAULT 0,
    healthy           boolean NOT NULL DEFAULT true,
    offered           bigint NOT NULL CHECK (offered >= 0),
    capacity          bigint NOT NULL,
    used              bigint NOT NULL DEFAULT 0,
    numa              integer CHECK (numa >= 0),
    nvlink_domain     text NOT NULL DEFAULT '',
    parent            text NOT NULL DEFAULT '',
    unhealthy_reason  text NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, slot, device_id),
    CONSTRAINT used_within_capacity CHECK (used BETWEEN 0 AND capacity)
);

-- The newest values. They are worthless after a crash, so the table is unlogged. Pages leave room
-- for the next version of a row, so that an update touches only that page (HOT).
CREATE UNLOGGED TABLE agent_usage (
    agent_id            text PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    at                  timestamptz NOT NULL,
    cpu                 bigint NOT NULL CHECK (cpu >= 0),
    memory              bigint NOT NULL CHECK (memory >= 0),
    devices             jsonb NOT NULL CHECK (jsonb_typeof(devices) = 'array'),
    kernels_cpu         bigint NOT NULL DEFAULT 0,
    kernels_memory      bigint NOT NULL DEFAULT 0,
    kernels_gpu         bigint NOT NULL DEFAULT 0,
    kernels_gpu_memory  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- When each proxy last reported, and which routes it used. `manager`, `address`: which manager
-- received the report, and where it came from. While that manager is running, no other process can
-- report under the same name.
CREATE TABLE proxy_reports (
    proxy_id           text PRIMARY KEY,
    incarnation        text NOT NULL,
    routes_generation  bigint NOT NULL,
    at                 timestamptz NOT NULL DEFAULT now(),
    tells_apps         boolean NOT NULL DEFAULT false,
    manager            uuid,
    address            text
);

-- The CA of the links. In addition, a rotation stores the `next` CA until every peer trusts it, and
-- then the certificate of the `retiring` one until no peer needs it.
CREATE TABLE link_authority (
    name                  text PRIMARY KEY CHECK (name = 'links'),
    certificate           text NOT NULL,
    key                   text NOT NULL CHECK (key LIKE '-----BEGIN ENCRYPTED PRIVATE KEY-----%'),
    created_at            timestamptz NOT NULL DEFAULT now(),
    next_certificate      text,
    next_key              text CHECK (next_key LIKE '-----BEGIN ENCRYPTED PRIVATE KEY-----%'),
    retiring_certificate  text,
    rotated_at            timestamptz,
    rotated_by            text,
    CHECK ((next_certificate IS NULL) = (next_key IS NULL)),
    CHECK (next_certificate IS NULL OR retiring_certificate IS NULL)
);

-- Postgres enforces the number of uses, no matter how many managers receive requests at once.
CREATE TABLE join_tokens (
    id              uuid PRIMARY KEY,
    verifier        text NOT NULL UNIQUE CHECK (verifier ~ '^[0-9a-f]{64}$'),
    kind            text NOT NULL CHECK (kind IN ('agent', 'proxy')),
    resource_group  text,
    uses            integer NOT NULL CHECK (uses > 0),
    used            integer NOT NULL DEFAULT 0,
    expires_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    created_by      text NOT NULL,
    removed_at      timestamptz,
    removed_by      text NOT NULL DEFAULT '',
    CHECK (used BETWEEN 0 AND uses)
);

-- `renewed_from`: the key with which the newest certificate was requested, until the peer connects
-- with the new key. After that, it is one of the `retired_keys`, which are refused.
-- `trusted_authorities`, `issuer`: SHA-256 of CA certificates.
CREATE TABLE link_peers (
    id                   uuid PRIMARY KEY,
    kind                 text NOT NULL CHECK (kind IN ('agent', 'proxy')),
    name                 text NOT NULL,
    resource_group       text,
    token_id             uuid REFERENCES join_tokens ON DELETE SET NULL,
    public_key           text NOT NULL,
    joined_at            timestamptz NOT NULL DEFAULT now(),
    certificate_until    timestamptz NOT NULL,
    revoked_at           timestamptz,
    revoked_by           text NOT NULL DEFAULT '',
    renewed_from         text,
    renewed_at           timestamptz,
    retired_keys         text[] NOT NULL DEFAULT '{}',
    trusted_authorities  text[] NOT NULL DEFAULT '{}',
    issuer               text
);

CREATE UNIQUE INDEX one_live_peer_per_name ON link_peers (kind, name) WHERE revoked_at IS NULL;
CREATE INDEX peers_by_token ON link_peers (token_id);

-- Every administrative write. An entry is written before the write and completed after it, so the
-- write of an entry without a status may or may not have happened.
CREATE TABLE audit_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT now(),
    actor         text NOT NULL,
    user_name     text NOT NULL,
    project       text NOT NULL,
    from_address  text NOT NULL,
    request_id    text NOT NULL,
    action        text NOT NULL,
    resource      text NOT NULL,
    name          text NOT NULL,
    status        integer,
    code          text NOT NULL DEFAULT '',
    before        jsonb,
    after         jsonb
);

CREATE INDEX audit_log_by_time ON audit_log (at);
CREATE INDEX audit_log_by_actor ON audit_log (actor, id);
CREATE INDEX audit_log_by_resource ON audit_log (resource, name, id);
