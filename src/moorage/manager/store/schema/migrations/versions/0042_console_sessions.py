"""Passwords of users, console sessions, and failed attempts to sign in.

Passwords are apart from ``users``, so that no listing of users can show them. Attempts are counted
by the name that was typed, whether or not there is such a user: a lock tells nobody who exists.
"""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE user_passwords (
    user_name   text PRIMARY KEY REFERENCES users,
    hash        text NOT NULL CHECK (hash LIKE '$argon2id$%'),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL DEFAULT ''
);
CREATE TABLE sign_in_attempts (
    name          text PRIMARY KEY,
    failures      integer NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    locked_until  timestamptz
);
CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (at);
CREATE TABLE console_sessions (
    id            uuid PRIMARY KEY,
    user_name     text NOT NULL REFERENCES users,
    key_id        uuid REFERENCES api_keys,
    project       text NOT NULL,
    sha256        text NOT NULL UNIQUE,
    from_address  text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL CHECK (expires_at > created_at),
    idle_s        integer NOT NULL CHECK (idle_s > 0),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz
);
CREATE INDEX console_sessions_by_user ON console_sessions (user_name);
CREATE INDEX console_sessions_by_end ON console_sessions (expires_at)
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
