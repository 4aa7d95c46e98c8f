"""Rotation of the CA of the links.

``link_authority``: the CA that issues, beside it the ``next`` one until every peer trusts it, then
the certificate of the ``retiring`` one until no peer needs it. ``link_peers``: the CAs that a peer
has said it trusts, and the one that issued the certificate that it used last, by the SHA-256 of
their certificates.
"""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

AUTHORITY = """
ALTER TABLE link_authority
    ADD COLUMN next_certificate text,
    ADD COLUMN next_key text CHECK (next_key LIKE '-----BEGIN ENCRYPTED PRIVATE KEY-----%'),
    ADD COLUMN retiring_certificate text,
    ADD COLUMN rotated_at timestamptz,
    ADD COLUMN rotated_by text,
    ADD CHECK ((next_certificate IS NULL) = (next_key IS NULL)),
    ADD CHECK (next_certificate IS NULL OR retiring_certificate IS NULL)
"""
PEERS = """
ALTER TABLE link_peers
    ADD COLUMN trusted_authorities text[] NOT NULL DEFAULT '{}',
    ADD COLUMN issuer text
"""


def upgrade() -> None:
    op.execute(AUTHORITY)
    op.execute(PEERS)
