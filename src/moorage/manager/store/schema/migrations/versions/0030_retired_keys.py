"""Keys of certificates that a renewal has replaced.

``renewed_from``: the key that asked for the newest certificate, at ``renewed_at``, until the peer
connects with the new one. Then it is one of the ``retired_keys``, which are refused.
"""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE link_peers ADD COLUMN renewed_from text, ADD COLUMN renewed_at timestamptz,"
        " ADD COLUMN retired_keys text[] NOT NULL DEFAULT '{}'"
    )
