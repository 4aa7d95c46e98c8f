"""People of the OpenID provider: which user somebody is, and the roles that rules have given.

What rules have given is kept, so that they withdraw only what they gave. A console session that was
opened through the provider ends when the link is undone.
"""

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE oidc_identities (
    user_name         text PRIMARY KEY REFERENCES users,
    issuer            text NOT NULL CHECK (issuer <> ''),
    subject           text NOT NULL CHECK (subject <> ''),
    granted_role      text CHECK (granted_role IN ('auditor', 'admin')),
    granted_projects  jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(granted_projects) = 'object'),
    created_at        timestamptz NOT NULL DEFAULT now(),
    last_sign_in_at   timestamptz,
    UNIQUE (issuer, subject)
);
ALTER TABLE console_sessions ADD COLUMN by_oidc boolean NOT NULL DEFAULT false
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
