-- `overlap`: the kernel is exempt from kernels_one_live_attempt. `lease_s`: the node stops the
-- program after this many seconds without contact with a manager. `started_at`, `ends_at`: times of
-- a site job. `kept_until`: a replica that cannot be reached is not replaced before this time.
CREATE TABLE kernels (
    id                uuid PRIMARY KEY,
    session_id        uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    hostname          text NOT NULL DEFAULT 'main1',
    attempt           integer NOT NULL,
    status            text NOT NULL
        CHECK (status IN ('PENDING', 'SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING',
            'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR')),
    agent_id          text REFERENCES agents,
    secret            text NOT NULL,
    observed          text,
    host              text NOT NULL DEFAULT '',
    port              integer NOT NULL DEFAULT 0,
    exit_code         integer,
    reason            text NOT NULL DEFAULT '',
    detail            text NOT NULL DEFAULT '',
    log_tail          text NOT NULL DEFAULT '',
    status_since      timestamptz NOT NULL DEFAULT now(),
    cluster_role      text NOT NULL DEFAULT 'main' CHECK (cluster_role IN ('main', 'sub')),
    cluster_index     integer NOT NULL DEFAULT 1 CHECK (cluster_index >= 1),
    overlap           boolean NOT NULL DEFAULT false,
    lease_s           float8 CHECK (lease_s > 0),
    unhealthy_since   timestamptz,
    unhealthy_detail  text NOT NULL DEFAULT '',
    expected_start    timestamptz,
    ends_at           timestamptz,
    started_at        timestamptz,
    running_at        timestamptz,
    kept_until        timestamptz,
    CONSTRAINT kernels_session_id_attempt_role_key UNIQUE (session_id, attempt, hostname),
    CONSTRAINT placed_has_agent CHECK (status IN ('PENDING', 'CANCELLED') OR agent_id IS NOT NULL),
    CONSTRAINT one_main CHECK (cluster_role = 'sub' OR cluster_index = 1),
    CONSTRAINT named_by_role CHECK (hostname = cluster_role || cluster_index::text)
);

CREATE INDEX kernels_live_by_agent ON kernels (agent_id)
    WHERE status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR');
-- All kernels of an attempt are placed in one statement, so a second live kernel with the same
-- position would mean a second live attempt.
CREATE UNIQUE INDEX kernels_one_live_attempt ON kernels (session_id, hostname)
    WHERE status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR') AND NOT overlap;
CREATE INDEX kernels_ended ON kernels (status_since)
    WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX kernels_of_jobs ON kernels (ends_at) WHERE ends_at IS NOT NULL;
CREATE TRIGGER kernels_charge AFTER UPDATE OF status ON kernels
    FOR EACH ROW WHEN (
        NEW.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
        AND OLD.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
        AND (NEW.running_at IS NOT NULL OR NEW.started_at IS NOT NULL)
    ) EXECUTE FUNCTION kernels_charge();
CREATE TRIGGER kernels_note_running BEFORE UPDATE OF status ON kernels
    FOR EACH ROW WHEN (NEW.status = 'RUNNING' AND OLD.running_at IS NULL)
    EXECUTE FUNCTION kernels_note_running();

CREATE TABLE allocations (
    kernel_id    uuid NOT NULL REFERENCES kernels ON DELETE CASCADE,
    agent_id     text NOT NULL,
    slot         text NOT NULL,
    device_id    text NOT NULL DEFAULT '',
    amount       bigint NOT NULL CHECK (amount > 0),
    taken_at     timestamptz NOT NULL DEFAULT now(),
    released_at  timestamptz,
    PRIMARY KEY (kernel_id, slot, device_id),
    FOREIGN KEY (agent_id, slot, device_id) REFERENCES agent_slots
);

CREATE INDEX allocations_held ON allocations (agent_id) WHERE released_at IS NULL;
-- A whole device has only one holder, even if the counters are wrong.
CREATE UNIQUE INDEX allocations_whole_device ON allocations (agent_id, device_id)
    WHERE released_at IS NULL AND device_id <> '' AND amount = 1000;

-- A port of an agent belongs to one kernel at a time, so no route leads to another kernel's
-- program. The row of an ended kernel stays until a live kernel takes the port over.
CREATE TABLE service_ports (
    agent_id   text NOT NULL REFERENCES agents ON DELETE CASCADE,
    port       integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    kernel_id  uuid NOT NULL REFERENCES kernels ON DELETE CASCADE,
    name       text NOT NULL CHECK (name ~ '^[a-z][a-z0-9]*(-[a-z0-9]+)*$' AND length(name) <= 24),
    protocol   text NOT NULL CHECK (protocol IN ('http', 'tcp')),
    base_path  boolean NOT NULL,
    guarded    boolean NOT NULL,
    host       text NOT NULL CHECK (host <> ''),
    PRIMARY KEY (agent_id, port)
);

CREATE INDEX service_ports_by_kernel ON service_ports (kernel_id);

-- The newest values. Like agent_usage, the table is unlogged and leaves room on each page.
CREATE UNLOGGED TABLE kernel_usage (
    kernel_id   uuid PRIMARY KEY REFERENCES kernels ON DELETE CASCADE,
    at          timestamptz NOT NULL,
    cpu         bigint NOT NULL CHECK (cpu >= 0),
    memory      bigint NOT NULL CHECK (memory >= 0),
    rx          bigint CHECK (rx >= 0),
    tx          bigint CHECK (tx >= 0),
    gpu         bigint CHECK (gpu >= 0),
    gpu_memory  bigint CHECK (gpu_memory >= 0)
) WITH (fillfactor = 50);

CREATE TABLE kernel_usage_spans (
    kernel_id        uuid NOT NULL REFERENCES kernels ON DELETE CASCADE,
    seconds          integer NOT NULL CHECK (seconds IN (60, 3600)),
    at               timestamptz NOT NULL,
    samples          integer NOT NULL CHECK (samples > 0),
    cpu              bigint NOT NULL,
    cpu_peak         bigint NOT NULL,
    memory           bigint NOT NULL,
    memory_peak      bigint NOT NULL,
    rx               bigint,
    rx_peak          bigint,
    tx               bigint,
    tx_peak          bigint,
    gpu              bigint,
    gpu_peak         bigint,
    gpu_memory       bigint,
    gpu_memory_peak  bigint,
    PRIMARY KEY (kernel_id, seconds, at),
    CHECK ((extract(epoch FROM at)::bigint % seconds::bigint) = 0),
    CHECK (cpu_peak >= cpu AND memory_peak >= memory)
);

CREATE INDEX kernel_usage_spans_age ON kernel_usage_spans (seconds, at);

CREATE TABLE kernel_progress (
    kernel_id  uuid PRIMARY KEY REFERENCES kernels ON DELETE CASCADE,
    fraction   float8 CHECK (fraction BETWEEN 0 AND 1),
    step       bigint CHECK (step >= 0),
    "of"       bigint CHECK (of >= 0),
    message    text NOT NULL,
    problem    text NOT NULL,
    at         timestamptz NOT NULL DEFAULT now()
);

-- Requested reloads of programs, and the outcome of the newest one.
CREATE TABLE kernel_reloads (
    kernel_id     uuid PRIMARY KEY REFERENCES kernels ON DELETE CASCADE,
    generation    bigint NOT NULL CHECK (generation > 0),
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT now(),
    ended         bigint NOT NULL DEFAULT 0,
    outcome       text NOT NULL DEFAULT ''
        CHECK (outcome IN ('', 'reloaded', 'failed', 'timed-out')),
    detail        text NOT NULL DEFAULT '',
    ended_at      timestamptz,
    CHECK (ended BETWEEN 0 AND generation),
    CHECK ((ended = 0) = (outcome = '') AND (ended = 0) = (ended_at IS NULL))
);

-- Former ids of kernels that got new ones when the database was restored or failed over. An agent
-- that reports such an id has a placement that the database has lost.
CREATE TABLE replaced_kernels (
    id         uuid PRIMARY KEY,
    kernel_id  uuid NOT NULL REFERENCES kernels ON UPDATE CASCADE ON DELETE CASCADE
);

CREATE INDEX replaced_kernels_by_kernel ON replaced_kernels (kernel_id);

-- What the engine of a kernel reports about itself.
CREATE TABLE engine_loads (
    kernel_id      uuid PRIMARY KEY REFERENCES kernels ON DELETE CASCADE,
    running        integer NOT NULL CHECK (running >= 0),
    waiting        integer NOT NULL CHECK (waiting >= 0),
    kv_cache       integer CHECK (kv_cache BETWEEN 0 AND 1000),
    changed_at     timestamptz NOT NULL DEFAULT now(),
    max_model_len  integer CHECK (max_model_len > 0)
);

CREATE INDEX engine_loads_changed ON engine_loads (changed_at);
