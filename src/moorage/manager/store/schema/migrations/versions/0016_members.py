"""Registration of peers: the certificate authority of the links, join tokens, and the members that
joined.

Postgres enforces the number of uses of a token, and that a name belongs to at most one member that
is not revoked, however many managers receive requests at once.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE link_authority (
    name        text PRIMARY KEY CHECK (name = 'links'),
    certificate text NOT NULL,
    key         text NOT NULL CHECK (key LIKE '-----BEGIN ENCRYPTED PRIVATE KEY-----%'),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE join_tokens (
    id             uuid PRIMARY KEY,
    verifier       text NOT NULL UNIQUE CHECK (verifier ~ '^[0-9a-f]{64}$'),
    kind           text NOT NULL CHECK (kind IN ('agent', 'proxy')),
    resource_group text,
    uses           integer NOT NULL CHECK (uses > 0),
    used           integer NOT NULL DEFAULT 0 CHECK (used BETWEEN 0 AND uses),
    expires_at     timestamptz NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL,
    removed_at     timestamptz,
    removed_by     text NOT NULL DEFAULT ''
);
CREATE TABLE link_members (
    id                uuid PRIMARY KEY,
    kind              text NOT NULL CHECK (kind IN ('agent', 'proxy')),
    name              text NOT NULL,
    resource_group    text,
    token_id          uuid REFERENCES join_tokens (id) ON DELETE SET NULL,
    public_key        text NOT NULL,
    joined_at         timestamptz NOT NULL DEFAULT now(),
    certificate_until timestamptz NOT NULL,
    revoked_at        timestamptz,
    revoked_by        text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX one_live_member_per_name ON link_members (kind, name) WHERE revoked_at IS NULL;
CREATE INDEX members_by_token ON link_members (token_id);
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
