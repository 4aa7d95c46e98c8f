"""Public keys by which users log in over SSH at the proxies.

A key that was registered with an API key acts as that one and ends with it. A public key belongs to
one user: two could not be told apart.
"""

from alembic import op

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE user_ssh_keys (
    id            uuid PRIMARY KEY,
    user_name     text NOT NULL REFERENCES users,
    name          text NOT NULL CHECK (name <> ''),
    key_id        uuid REFERENCES api_keys,
    fingerprint   text NOT NULL UNIQUE CHECK (fingerprint ~ '^SHA256:[A-Za-z0-9+/]{43}$'),
    public_key    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text NOT NULL DEFAULT '',
    last_used_at  timestamptz,
    UNIQUE (user_name, name),
    CHECK (public_key ~ '^(ssh-rsa|(sk-)?(ssh-ed25519|ecdsa-sha2-nistp[0-9]+)(@openssh[.]com)?) '),
    CHECK (fingerprint = 'SHA256:' || rtrim(encode(
        sha256(decode(split_part(public_key, ' ', 2), 'base64')), 'base64'), '='))
);
CREATE INDEX user_ssh_keys_by_api_key ON user_ssh_keys (key_id) WHERE key_id IS NOT NULL
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
