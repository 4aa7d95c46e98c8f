"""Silent agents, and jumps of the database's clock.

An agent announces how often it reports, and how long its runtimes tolerate its silence. It becomes
LOST only from SUSPECT. A group in which too many agents are silent at once loses none of them
(``losses_held_since``). ``clock_jumps`` counts the jumps by which deadlines were moved.
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE agents
    ADD COLUMN report_interval_s float8 NOT NULL DEFAULT 0,
    ADD COLUMN silence_grace_s jsonb NOT NULL DEFAULT '{}';
ALTER TABLE resource_groups ADD COLUMN losses_held_since timestamptz;
ALTER TABLE leases ADD COLUMN clock_jumps integer NOT NULL DEFAULT 0;
CREATE FUNCTION refuse_sudden_loss() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'agent % is ALIVE: it can only become SUSPECT', OLD.id
        USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER lost_only_from_suspect BEFORE UPDATE OF status ON agents FOR EACH ROW
    WHEN (OLD.status = 'ALIVE' AND NEW.status = 'LOST') EXECUTE FUNCTION refuse_sudden_loss();
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
