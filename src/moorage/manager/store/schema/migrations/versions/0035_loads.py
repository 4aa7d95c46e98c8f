"""Load and health of replicas, and the scaling decisions that follow from them.

``proxy_reports``: when each proxy last said anything, and by which routes it picked.
``model_loads``: what it said of each model; ``replicas`` counts the requests in flight by session.
``engine_loads``: what the engine of a kernel says of itself. ``drain_generation``: tables of routes
above it say that the replica drains.
"""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE proxy_reports (
    proxy_id           text PRIMARY KEY,
    incarnation        text NOT NULL,
    routes_generation  bigint NOT NULL,
    at                 timestamptz NOT NULL DEFAULT now()
);
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
    PRIMARY KEY (proxy_id, model)
);
CREATE INDEX model_loads_by_model ON model_loads (model);
CREATE INDEX model_loads_changed ON model_loads (changed_at);
CREATE TABLE engine_loads (
    kernel_id   uuid PRIMARY KEY REFERENCES kernels ON DELETE CASCADE,
    running     integer NOT NULL CHECK (running >= 0),
    waiting     integer NOT NULL CHECK (waiting >= 0),
    kv_cache    integer CHECK (kv_cache BETWEEN 0 AND 1000),
    changed_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX engine_loads_changed ON engine_loads (changed_at);
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
CREATE INDEX endpoints_autoscaled ON endpoints (name) WHERE deleted_at IS NULL AND serving ? 'autoscale';
ALTER TABLE endpoints ADD COLUMN scaled_at timestamptz, ADD COLUMN scalings integer NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN drain_generation bigint;
ALTER TABLE kernels
    ADD COLUMN unhealthy_since timestamptz, ADD COLUMN unhealthy_detail text NOT NULL DEFAULT ''
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
