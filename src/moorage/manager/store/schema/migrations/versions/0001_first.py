"""The initial schema.

Constraints refuse invalid states whatever the code does: a slot used beyond its capacity
(``agent_slots``), a device allocated twice to one kernel or released twice (``allocations``), an
unknown status, two live sessions or endpoints of one name, a gap or a fork in a history.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATUSES = (
    "'PENDING', 'SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING', 'TERMINATING', "
    "'TERMINATED', 'CANCELLED', 'ERROR'"
)

SCHEMA = f"""
CREATE TABLE resource_groups (
    name        text PRIMARY KEY,
    options     jsonb NOT NULL DEFAULT '{{}}',
    created_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO resource_groups (name) VALUES ('default');

CREATE TABLE api_keys (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    role        text NOT NULL CHECK (role IN ('admin', 'member')),
    prefix      text NOT NULL,
    sha256      text NOT NULL UNIQUE CHECK (sha256 ~ '^[0-9a-f]{{64}}$'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz
);

CREATE TABLE agents (
    id              text PRIMARY KEY,
    resource_group  text NOT NULL,
    status          text NOT NULL CHECK (status IN ('ALIVE', 'SUSPECT', 'LOST')),
    incarnation     text NOT NULL,
    address         text NOT NULL,
    version         text NOT NULL,
    arch            text NOT NULL,
    runtimes        text[] NOT NULL,
    engines         text[] NOT NULL,
    labels          jsonb NOT NULL DEFAULT '{{}}',
    draining        boolean NOT NULL DEFAULT false,
    connected_at    timestamptz NOT NULL DEFAULT now(),
    last_seen       timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE agent_slots (
    agent_id      text NOT NULL REFERENCES agents ON DELETE CASCADE,
    slot          text NOT NULL,
    device_id     text NOT NULL DEFAULT '',
    model         text NOT NULL DEFAULT '',
    memory_bytes  bigint NOT NULL DEFAULT 0,
    healthy       boolean NOT NULL DEFAULT true,
    offered       bigint NOT NULL CHECK (offered >= 0),
    capacity      bigint NOT NULL,
    used          bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, slot, device_id),
    CONSTRAINT used_within_capacity CHECK (used >= 0 AND used <= capacity)
);

CREATE TABLE endpoints (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    spec        jsonb NOT NULL,
    replicas    integer NOT NULL CHECK (replicas >= 0),
    revision    integer NOT NULL DEFAULT 1,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz
);
CREATE UNIQUE INDEX endpoints_live_name ON endpoints (name) WHERE deleted_at IS NULL;

CREATE TABLE sessions (
    id              uuid PRIMARY KEY,
    name            text NOT NULL,
    type            text NOT NULL CHECK (type IN ('interactive', 'batch', 'inference')),
    status          text NOT NULL CHECK (status IN ({STATUSES})),
    result          text NOT NULL DEFAULT 'UNDEFINED' CHECK (result IN ('UNDEFINED', 'SUCCESS', 'FAILURE')),
    reason          text NOT NULL DEFAULT '',
    detail          text NOT NULL DEFAULT '',
    resource_group  text NOT NULL REFERENCES resource_groups,
    priority        integer NOT NULL CHECK (priority BETWEEN 0 AND 100),
    spec            jsonb NOT NULL,
    slots           jsonb NOT NULL,
    endpoint_id     uuid REFERENCES endpoints,
    attempt         integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    revision        integer NOT NULL DEFAULT 1,
    created_by      text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    status_since    timestamptz NOT NULL DEFAULT now(),
    deadline_at     timestamptz,
    ready_at        timestamptz,
    retries         integer NOT NULL DEFAULT 0,
    hold            jsonb
);
CREATE UNIQUE INDEX sessions_live_name ON sessions (name)
    WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_pending ON sessions (resource_group, created_at) WHERE status = 'PENDING';
CREATE INDEX sessions_moving ON sessions (id)
    WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING');
CREATE INDEX sessions_deadline ON sessions (deadline_at)
    WHERE deadline_at IS NOT NULL AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_newest ON sessions (created_at DESC, id DESC);
CREATE INDEX sessions_by_name ON sessions (name, created_at DESC);
CREATE INDEX sessions_by_endpoint ON sessions (endpoint_id, created_at DESC) WHERE endpoint_id IS NOT NULL;

CREATE TABLE kernels (
    id            uuid PRIMARY KEY,
    session_id    uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    role          text NOT NULL DEFAULT 'main1',
    attempt       integer NOT NULL,
    status        text NOT NULL CHECK (status IN ({STATUSES})),
    agent_id      text REFERENCES agents,
    secret        text NOT NULL,
    observed      text,
    host          text NOT NULL DEFAULT '',
    port          integer NOT NULL DEFAULT 0,
    exit_code     integer,
    reason        text NOT NULL DEFAULT '',
    detail        text NOT NULL DEFAULT '',
    log_tail      text NOT NULL DEFAULT '',
    status_since  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (session_id, attempt, role),
    CONSTRAINT placed_has_agent CHECK (status IN ('PENDING', 'CANCELLED') OR agent_id IS NOT NULL)
);
CREATE INDEX kernels_live_by_agent ON kernels (agent_id)
    WHERE status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR');

CREATE TABLE allocations (
    kernel_id    uuid NOT NULL REFERENCES kernels ON DELETE CASCADE,
    agent_id     text NOT NULL,
    slot         text NOT NULL,
    device_id    text NOT NULL DEFAULT '',
    amount       bigint NOT NULL CHECK (amount > 0),
    taken_at     timestamptz NOT NULL DEFAULT now(),
    released_at  timestamptz,
    PRIMARY KEY (kernel_id, slot, device_id),
    FOREIGN KEY (agent_id, slot, device_id) REFERENCES agent_slots (agent_id, slot, device_id)
);
CREATE INDEX allocations_held ON allocations (agent_id) WHERE released_at IS NULL;
-- A whole device has one holder: refused here even if the counters were wrong.
CREATE UNIQUE INDEX allocations_whole_device ON allocations (agent_id, device_id)
    WHERE released_at IS NULL AND device_id <> '' AND amount = 1000;

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

CREATE TABLE leases (
    name        text PRIMARY KEY CHECK (name = 'leader'),
    holder      text NOT NULL,
    term        bigint NOT NULL,
    expires_at  timestamptz NOT NULL
);
"""

# Generations start at the time of creation in milliseconds. Agents and proxies that remember
# generations of a deleted database therefore accept those of a new database as newer.
GENERATIONS = """
DO $$ BEGIN
    EXECUTE format('CREATE SEQUENCE generations START %s', (extract(epoch FROM now()) * 1000)::bigint);
END $$
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(GENERATIONS)
