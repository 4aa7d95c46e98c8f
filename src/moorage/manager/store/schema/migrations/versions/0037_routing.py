"""Routing of endpoints: what the proxies do with requests, which is no part of a revision.

A revision is what the replicas run, so the first one leaves ``serving.routing`` out, as later ones
do.
"""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

FIRST = """
CREATE OR REPLACE FUNCTION add_first_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by)
    VALUES (NEW.id, 1, (NEW.spec || NEW.serving) - 'name' - 'replicas' - 'autoscale' - 'rollout' - 'routing',
            NEW.created_by);
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.execute(FIRST)
