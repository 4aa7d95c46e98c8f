"""At most one live attempt of a session, and leases of kernels.

The index refuses a second live kernel of the same place in a session. All kernels of an attempt are
placed in one statement, so it refuses a second live attempt. ``overlap`` exempts the kernels of
sessions that allow it.

``lease_s``: the kernel's node ends the program when it has had no contact with a manager for so
long. ``lease_runtimes``: the runtimes for which an agent can do that.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

LIVE = "status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE kernels ADD COLUMN overlap boolean NOT NULL DEFAULT false, "
        "ADD COLUMN lease_s double precision CHECK (lease_s > 0)"
    )
    op.execute("ALTER TABLE agents ADD COLUMN lease_runtimes text[] NOT NULL DEFAULT '{}'")

    # Attempts that overlap already, as the release before allowed.
    op.execute(
        f"UPDATE kernels k SET overlap = true WHERE {LIVE} AND EXISTS ("
        "SELECT FROM sessions s WHERE s.id = k.session_id "
        "AND (s.endpoint_id IS NOT NULL OR s.attempt <> k.attempt))"
    )
    op.execute(
        "CREATE UNIQUE INDEX kernels_one_live_attempt ON kernels (session_id, hostname) "
        f"WHERE {LIVE} AND NOT overlap"
    )
