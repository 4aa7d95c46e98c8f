"""The decision log: compressed segments of about a second, in sequence for each resource group.

``whole``: the segment can be decoded without earlier ones. ``dropped``: the number of passes before
it that are missing. ``run`` and ``number`` identify a segment, so a repeated insert stores nothing.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE decisions (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_group  text NOT NULL,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL,
    term            bigint NOT NULL,
    run             uuid NOT NULL,
    number          integer NOT NULL CHECK (number >= 0),
    format          integer NOT NULL,
    whole           boolean NOT NULL,
    passes          integer NOT NULL CHECK (passes > 0),
    dropped         integer NOT NULL CHECK (dropped >= 0),
    size            integer NOT NULL,
    body            bytea NOT NULL,
    UNIQUE (run, resource_group, number),
    CHECK (from_at <= to_at),
    CHECK (size = octet_length(body))
);
ALTER TABLE decisions ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX decisions_whole ON decisions (resource_group, from_at) WHERE whole;
CREATE INDEX decisions_group ON decisions (resource_group, id);
CREATE INDEX decisions_age ON decisions (to_at);
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
