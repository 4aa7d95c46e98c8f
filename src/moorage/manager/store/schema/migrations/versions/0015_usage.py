"""Resource usage of kernels and agents: the newest values, and minutes and hours of kernels.

The newest values are written every few seconds and are worthless after a crash. Their tables are
therefore unlogged. They leave room on each page for the next version of a row and have no index but
the key, so that an update touches only the row (HOT). Rows of a kernel are deleted with the kernel.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_PER_KERNEL = "kernel_id uuid NOT NULL REFERENCES kernels (id) ON DELETE CASCADE"


def upgrade() -> None:
    op.execute(
        f"CREATE UNLOGGED TABLE kernel_usage ({_PER_KERNEL} PRIMARY KEY, at timestamptz NOT NULL,"
        " cpu bigint NOT NULL CHECK (cpu >= 0), memory bigint NOT NULL CHECK (memory >= 0),"
        " rx bigint CHECK (rx >= 0), tx bigint CHECK (tx >= 0),"
        " gpu bigint CHECK (gpu >= 0), gpu_memory bigint CHECK (gpu_memory >= 0)"
        ") WITH (fillfactor = 50)"
    )
    op.execute(
        "CREATE UNLOGGED TABLE agent_usage ("
        "agent_id text PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE, at timestamptz NOT "
        "NULL,"
        " cpu bigint NOT NULL CHECK (cpu >= 0), memory bigint NOT NULL CHECK (memory >= 0),"
        " devices jsonb NOT NULL CHECK (jsonb_typeof(devices) = 'array')"
        ") WITH (fillfactor = 50)"
    )
    op.execute(
        f"CREATE TABLE kernel_usage_spans ({_PER_KERNEL}, seconds integer NOT NULL, at "
        "timestamptz NOT NULL,"
        " samples integer NOT NULL CHECK (samples > 0),"
        " cpu bigint NOT NULL, cpu_peak bigint NOT NULL, memory bigint NOT NULL, memory_peak "
        "bigint NOT NULL,"
        " rx bigint, rx_peak bigint, tx bigint, tx_peak bigint,"
        " gpu bigint, gpu_peak bigint, gpu_memory bigint, gpu_memory_peak bigint,"
        " PRIMARY KEY (kernel_id, seconds, at),"
        " CHECK (seconds IN (60, 3600)), CHECK (extract(epoch FROM at)::bigint % seconds = 0),"
        " CHECK (cpu_peak >= cpu AND memory_peak >= memory))"
    )

    # For roll-up and garbage collection by age.
    op.execute("CREATE INDEX kernel_usage_spans_age ON kernel_usage_spans (seconds, at)")
