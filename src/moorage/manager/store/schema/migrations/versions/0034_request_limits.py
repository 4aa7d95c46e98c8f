"""Limits of requests for models, their shares, and usage.

``projects``: limits of all requests with keys of a project. ``limit_shares``: how the proxies share
the limits of a subject now. ``usage_records``: what requests used, as the proxies counted it. A
record is stored once, whatever is sent twice, and never changed.
"""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_LIMITS = """
    ADD COLUMN requests_per_minute integer CHECK (requests_per_minute >= 0),
    ADD COLUMN tokens_per_minute integer CHECK (tokens_per_minute >= 0),
    ADD COLUMN concurrent_requests integer CHECK (concurrent_requests >= 0)
"""
SHARES = """
CREATE TABLE limit_shares (
    subject   text PRIMARY KEY CHECK (subject ~ '^(key|project|model)/'),
    revision  bigint NOT NULL,
    shares    jsonb NOT NULL
)
"""
USAGE = """
CREATE TABLE usage_records (
    source        text NOT NULL,
    epoch         text NOT NULL,
    sequence      bigint NOT NULL CHECK (sequence > 0),
    began_at      timestamptz NOT NULL,
    ended_at      timestamptz NOT NULL CHECK (ended_at >= began_at),
    project       text NOT NULL,
    username      text NOT NULL,
    key_id        text NOT NULL,
    model         text NOT NULL,
    requests      bigint NOT NULL CHECK (requests >= 0),
    tokens_in     bigint NOT NULL CHECK (tokens_in >= 0),
    tokens_out    bigint NOT NULL CHECK (tokens_out >= 0),
    tokens_cached bigint NOT NULL CHECK (tokens_cached BETWEEN 0 AND tokens_in),
    stored_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, epoch, sequence)
)
"""
INDEX = "CREATE INDEX usage_records_of_project ON usage_records (project, ended_at)"
STAY = """
CREATE FUNCTION usage_records_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a usage record is never changed';
END $$
"""
TRIGGER = """
CREATE TRIGGER usage_records_stay BEFORE UPDATE ON usage_records
    FOR EACH STATEMENT EXECUTE FUNCTION usage_records_stay()
"""


def upgrade() -> None:
    op.execute(f"ALTER TABLE projects {_LIMITS}")
    for statement in (SHARES, USAGE, INDEX, STAY, TRIGGER):
        op.execute(statement)
