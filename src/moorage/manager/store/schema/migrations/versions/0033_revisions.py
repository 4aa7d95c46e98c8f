"""Revisions of endpoints, and replicas that drain.

``endpoints.spec`` stays what the release before reads; ``serving`` has what it does not know:
scaling, rollout and the lifetime of replicas. ``target_revision``: the revision that all replicas
shall have. A revision's ``spec`` is what its replicas run, and never changes. ``completed_at``: all
replicas had it and were ready. ``failed_at``: it was rolled back.

A trigger writes the first revision, also of endpoints that a manager of the release before creates.
Replicas that such a manager creates have no revision, and count as being of the first one.
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

TEMPLATE = "spec - 'name' - 'replicas'"
SCHEMA = f"""
ALTER TABLE endpoints
    ADD COLUMN serving jsonb NOT NULL DEFAULT '{{}}',
    ADD COLUMN target_revision integer NOT NULL DEFAULT 1;
CREATE TABLE endpoint_revisions (
    endpoint_id   uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE,
    revision      integer NOT NULL CHECK (revision > 0),
    spec          jsonb NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text NOT NULL,
    completed_at  timestamptz,
    failed_at     timestamptz,
    reason        text NOT NULL DEFAULT '',
    detail        text NOT NULL DEFAULT '',
    PRIMARY KEY (endpoint_id, revision)
);
INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_at, created_by, completed_at)
SELECT id, 1, {TEMPLATE}, created_at, created_by,
       (SELECT min(s.ready_at) FROM sessions s WHERE s.endpoint_id = e.id AND s.status = 'RUNNING')
FROM endpoints e;
ALTER TABLE endpoints ADD CONSTRAINT endpoints_target FOREIGN KEY (id, target_revision)
    REFERENCES endpoint_revisions (endpoint_id, revision) DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE endpoint_idempotency_keys (
    scope           text NOT NULL,
    key             text NOT NULL CHECK (key <> ''),
    request_digest  text NOT NULL CHECK (request_digest ~ '^[0-9a-f]{{64}}$'),
    endpoint_id     uuid NOT NULL REFERENCES endpoints ON DELETE CASCADE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key)
);
CREATE INDEX endpoint_idempotency_keys_age ON endpoint_idempotency_keys (created_at);
ALTER TABLE sessions
    ADD COLUMN endpoint_revision integer CHECK (endpoint_revision > 0),
    ADD COLUMN draining_since timestamptz,
    ADD COLUMN drain_reason text NOT NULL DEFAULT ''
"""

FIRST = """
CREATE FUNCTION add_first_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by)
    VALUES (NEW.id, 1, (NEW.spec || NEW.serving) - 'name' - 'replicas' - 'autoscale' - 'rollout',
            NEW.created_by);
    RETURN NULL;
END $$
"""

KEEP = """
CREATE FUNCTION keep_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'revision % of endpoint % never changes', OLD.revision, OLD.endpoint_id
        USING ERRCODE = 'integrity_constraint_violation';
END $$
"""

TRIGGERS = """
CREATE TRIGGER endpoints_first_revision AFTER INSERT ON endpoints
    FOR EACH ROW EXECUTE FUNCTION add_first_revision();
CREATE TRIGGER endpoint_revisions_keep BEFORE UPDATE OF endpoint_id, revision, spec ON endpoint_revisions
    FOR EACH ROW EXECUTE FUNCTION keep_revision()
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
    op.execute(FIRST)
    op.execute(KEEP)
    for statement in TRIGGERS.split(";\n"):
        op.execute(statement)
