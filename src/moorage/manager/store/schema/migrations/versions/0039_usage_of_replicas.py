"""Replicas, endpoints and resource groups of usage records, and their roll-up into hours.

``usage_hours``: what records of one hour (in UTC) add up to. ``usage_epochs``: up to which number
the records of an epoch were rolled up. One of them that arrives again is removed at once, so that
it counts once.

Of the serving options of an endpoint, revisions have those of the replicas alone.
"""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE usage_records
    ADD COLUMN session_id text NOT NULL DEFAULT '',
    ADD COLUMN endpoint text NOT NULL DEFAULT '',
    ADD COLUMN resource_group text NOT NULL DEFAULT ''
"""
INDEX = "CREATE INDEX usage_records_by_time ON usage_records (ended_at)"
EPOCHS = """
CREATE TABLE usage_epochs (
    source    text NOT NULL,
    epoch     text NOT NULL,
    sequence  bigint NOT NULL CHECK (sequence > 0),
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, epoch)
)
"""
HOURS = """
CREATE TABLE usage_hours (
    at             timestamptz NOT NULL CHECK (at = date_bin('1 hour', at, 'epoch')),
    project        text NOT NULL,
    username       text NOT NULL,
    key_id         text NOT NULL,
    model          text NOT NULL,
    endpoint       text NOT NULL,
    session_id     text NOT NULL,
    resource_group text NOT NULL,
    requests       bigint NOT NULL CHECK (requests >= 0),
    tokens_in      bigint NOT NULL CHECK (tokens_in >= 0),
    tokens_out     bigint NOT NULL CHECK (tokens_out >= 0),
    tokens_cached  bigint NOT NULL CHECK (tokens_cached BETWEEN 0 AND tokens_in),
    PRIMARY KEY (at, project, username, key_id, model, endpoint, session_id, resource_group)
)
"""
HOURS_INDEX = "CREATE INDEX usage_hours_of_project ON usage_hours (project, at)"
# After the insert, which waits for a roll-up of the same record, so that it sees what the roll-up
# noted.
ONCE = """
CREATE FUNCTION usage_records_count_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM usage_records r USING added a JOIN usage_epochs e USING (source, epoch)
    WHERE (r.source, r.epoch, r.sequence) = (a.source, a.epoch, a.sequence) AND a.sequence <= e.sequence;
    RETURN NULL;
END $$
"""
TRIGGER = """
CREATE TRIGGER usage_records_count_once AFTER INSERT ON usage_records
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION usage_records_count_once()
"""
FIRST_REVISION = """
CREATE OR REPLACE FUNCTION add_first_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by)
    VALUES (NEW.id, 1, NEW.spec - 'name' - 'replicas' - 'autoscale' - 'rollout' || (
                SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(NEW.serving)
                WHERE key IN ('max_lifetime_s', 'adapters')),
            NEW.created_by);
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    for statement in (COLUMNS, INDEX, EPOCHS, HOURS, HOURS_INDEX, ONCE, TRIGGER, FIRST_REVISION):
        op.execute(statement)
