"""Load of endpoints, nodes and devices over time: means and sums over a minute, an hour and a
day."""

from alembic import op

revision = "202611281340"
down_revision = "202611281016"
branch_labels = None
depends_on = None

_SPAN = (
    "seconds integer NOT NULL CHECK (seconds IN (60, 3600, 86400)), "
    "at timestamptz NOT NULL CHECK (extract(epoch FROM at)::bigint % seconds = 0), "
    "samples integer NOT NULL CHECK (samples > 0), "
)


def upgrade() -> None:
    # `counted`: requests, errors, tokens_in and tokens_out, as far as they are in the spans; NULL
    # until the first sample.
    op.execute(
        "ALTER TABLE model_loads "
        "ADD COLUMN errors bigint NOT NULL DEFAULT 0 CHECK (errors >= 0), "
        "ADD COLUMN tokens_in bigint NOT NULL DEFAULT 0 CHECK (tokens_in >= 0), "
        "ADD COLUMN tokens_out bigint NOT NULL DEFAULT 0 CHECK (tokens_out >= 0), "
        "ADD COLUMN counted bigint[] CHECK (cardinality(counted) = 4)"
    )
    op.execute(
        "CREATE TABLE load_samples ("
        "name text PRIMARY KEY CHECK (name = 'all'), "
        "at timestamptz NOT NULL)"
    )
    # Sums of requests and tokens over `covered_s` seconds, and means of the other values over the
    # samples. `first_token_ms`: mean of the 90th percentile of a minute over `first_tokens`
    # samples, which are those with requests.
    op.execute(
        "CREATE TABLE endpoint_load_spans ("
        "endpoint_id uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE, "
        + _SPAN
        + "covered_s float8 NOT NULL CHECK (covered_s >= 0), "
        "requests bigint NOT NULL CHECK (requests >= 0), "
        "errors bigint NOT NULL CHECK (errors >= 0), "
        "tokens_in bigint NOT NULL CHECK (tokens_in >= 0), "
        "tokens_out bigint NOT NULL CHECK (tokens_out >= 0), "
        "first_tokens integer NOT NULL CHECK (first_tokens BETWEEN 0 AND samples), "
        "first_token_ms float8, "
        "first_token_peak_ms integer, "
        "running float8 NOT NULL, "
        "waiting float8 NOT NULL, "
        "held float8 NOT NULL, "
        "wanted float8 NOT NULL, "
        "ready float8 NOT NULL, "
        "PRIMARY KEY (endpoint_id, seconds, at), "
        "CHECK ((first_tokens = 0) = (first_token_ms IS NULL)), "
        "CHECK ((first_tokens = 0) = (first_token_peak_ms IS NULL)), "
        "CHECK (covered_s > 0 OR (requests, errors, tokens_in, tokens_out) = (0, 0, 0, 0))"
        ") WITH (fillfactor = 80)"
    )
    op.execute("CREATE INDEX endpoint_load_spans_age ON endpoint_load_spans (seconds, at)")
    # A row has all devices of the node: row i of the arrays belongs to `devices[i]`.
    arrays = ("device_samples", "gpu", "device_memory", "temperature", "power")
    same = " AND ".join(f"cardinality({name}) = cardinality(devices)" for name in arrays)
    op.execute(
        "CREATE TABLE agent_load_spans ("
        "agent_id text NOT NULL REFERENCES agents ON DELETE CASCADE, "
        + _SPAN
        + "cpu float8 NOT NULL CHECK (cpu >= 0), "
        "memory float8 NOT NULL CHECK (memory >= 0), "
        "devices text[] NOT NULL, "
        "device_samples integer[] NOT NULL, "
        "gpu real[] NOT NULL, "
        "device_memory real[] NOT NULL, "
        "temperature real[] NOT NULL, "
        "power real[] NOT NULL, "
        "PRIMARY KEY (agent_id, seconds, at), "
        f"CHECK ({same})"
        ") WITH (fillfactor = 80)"
    )
    op.execute("CREATE INDEX agent_load_spans_age ON agent_load_spans (seconds, at)")
