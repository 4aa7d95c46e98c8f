"""What an endpoint served before each of its revisions, and since when it shall have its target.

``served_before`` follows the targets: a revision that replaces another one was preceded by that,
or, if that was never complete, by what preceded it. A return to one of the revisions that preceded
the target changes nothing of theirs, so whatever was undone or rolled back is no longer before
anything. ``target_since`` tells whether a failure (``failed_at``) made a revision the target, in
the same transaction, or a user has since.

A trigger writes both, also for a manager of the release before. Of older revisions is known only
which were complete: each is taken to have followed the one before it.
"""

from alembic import op

revision = "202611271040"
down_revision = "202611271030"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE endpoint_revisions
    ADD COLUMN served_before integer,
    ADD COLUMN target_since timestamptz NOT NULL DEFAULT now();
UPDATE endpoint_revisions r SET
    served_before = (
        SELECT max(o.revision) FROM endpoint_revisions o
        WHERE o.endpoint_id = r.endpoint_id AND o.revision < r.revision AND o.completed_at IS NOT NULL),
    target_since = greatest(r.created_at, (
        SELECT max(o.failed_at) FROM endpoint_revisions o
        WHERE o.endpoint_id = r.endpoint_id AND o.revision > r.revision))
"""

FOLLOW = """
CREATE FUNCTION follow_target() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH RECURSIVE replaced AS (
        SELECT served_before, CASE WHEN completed_at IS NULL THEN served_before ELSE revision END AS served
        FROM endpoint_revisions WHERE endpoint_id = OLD.id AND revision = OLD.target_revision
    ), preceding AS (
        SELECT served_before AS revision FROM replaced
        UNION
        SELECT r.served_before FROM preceding p
        JOIN endpoint_revisions r ON r.endpoint_id = OLD.id AND r.revision = p.revision
    )
    UPDATE endpoint_revisions r SET target_since = now(), served_before = CASE
        WHEN r.revision IN (SELECT p.revision FROM preceding p WHERE p.revision IS NOT NULL)
        THEN r.served_before ELSE (SELECT served FROM replaced) END
    WHERE r.endpoint_id = NEW.id AND r.revision = NEW.target_revision;
    RETURN NULL;
END $$
"""

TRIGGER = """
CREATE TRIGGER endpoints_follow_target AFTER UPDATE OF target_revision ON endpoints
    FOR EACH ROW WHEN (OLD.target_revision <> NEW.target_revision) EXECUTE FUNCTION follow_target()
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
    op.execute(FOLLOW)
    op.execute(TRIGGER)
