"""The schema of release 0.1.0, in ``baseline/`` by subject.

It is the result of the 94 migrations that preceded it, and has the name of the last one. A database
that already has this schema needs no change; older ones are refused (see ``check_revision``).
Columns are in the order in which those migrations added them.
"""

from pathlib import Path

from alembic import op

from moorage.manager.store.schema.database_functions import function_statements

revision = "202611272025"
down_revision = None
branch_labels = None
depends_on = None
# This schema is not tested alongside managers of releases whose migrations begin earlier.
compatible_since = "202611272025"

_BASELINE = Path(__file__).parents[1] / "baseline"
# In an order in which each refers only to earlier ones.
_SUBJECTS = (
    "database",
    "groups",
    "identity",
    "platform",
    "endpoints",
    "sessions",
    "kernels",
    "scheduling",
    "pipelines",
    "metering",
)
# Generations start at the time of creation in milliseconds. Agents and proxies that remember
# generations of a deleted database therefore accept those of a new database as newer.
_GENERATIONS = """
DO $$ BEGIN
    EXECUTE format('CREATE SEQUENCE generations START %s', (extract(epoch FROM now()) * 1000)::bigint);
END $$
"""


def upgrade() -> None:
    # Triggers need the functions, and the bodies of the functions name the tables.
    op.execute("SET LOCAL check_function_bodies = off")
    for statement in function_statements().values():
        op.execute(statement)

    op.execute("SET LOCAL check_function_bodies = on")
    for subject in _SUBJECTS:
        text = (_BASELINE / f"{subject}.sql").read_text(encoding="utf-8")
        for statement in text.split(";\n"):
            if statement.strip():
                op.execute(statement)

    op.execute(_GENERATIONS)
