"""Values in JSON that are not of the type that a statement expects, as a newer release or a person
may have stored them: NULL, or empty, in place of an error that ends the whole statement for every
row.

``leases.schema``: the newest schema that the leader knows; NULL: it is of an earlier release, and
does not say it. One that knows this schema leaves out a row that it cannot read, and goes on with
the others.

They are not STRICT, and each is one expression, so Postgres inlines them.
"""

from alembic import op

revision = "202611271030"
down_revision = "202611270830"
branch_labels = None
depends_on = None

# The bounds: so many seconds before or after now are a time that Python knows, and sums of
# thousands of such amounts are a bigint.
FUNCTIONS = """
CREATE FUNCTION as_number(value jsonb) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN jsonb_typeof(value) = ''number''
        THEN CASE WHEN value::numeric BETWEEN -1e11 AND 1e11 THEN value::float8 END END'
;;
CREATE FUNCTION as_integer(value jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN jsonb_typeof(value) = ''number''
        THEN CASE WHEN value::numeric BETWEEN -1e15 AND 1e15 AND value::numeric % 1 = 0
                  THEN value::bigint END END'
;;
CREATE FUNCTION as_boolean(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN jsonb_typeof(value) = ''boolean'' THEN value::boolean END'
;;
CREATE FUNCTION as_uuid(value jsonb) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN value #>> ''{}'' ~ ''^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$''
        THEN (value #>> ''{}'')::uuid END'
;;
CREATE FUNCTION as_array(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN jsonb_typeof(value) = ''array'' THEN value ELSE ''[]''::jsonb END'
;;
CREATE FUNCTION as_object(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
'SELECT CASE WHEN jsonb_typeof(value) = ''object'' THEN value ELSE ''{}''::jsonb END'
;;
-- A document that is stored as a JSON string, which keeps the order of its keys. Not for parallel workers,
-- which begin no subtransactions.
CREATE FUNCTION as_document(value jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS
'BEGIN
    RETURN (value #>> ''{}'')::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END'
;;
CREATE OR REPLACE FUNCTION adapter_names(endpoint text, serving jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE AS
'SELECT coalesce(array_agg(endpoint || '':'' || (a ->> ''name'')) FILTER (WHERE a ? ''name''), ''{}'')
 FROM jsonb_array_elements(as_array(serving -> ''adapters'')) a'
"""


LEADER = """
CREATE OR REPLACE FUNCTION refuse_older_leader() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.expires_at > now() AND (SELECT leads_since FROM schema_compatibility) COLLATE "C"
        > coalesce(nullif(current_setting('moorage.schema', true), ''), '0075') THEN
        RETURN NULL;
    END IF;
    NEW.schema := nullif(current_setting('moorage.schema', true), '');
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    op.execute("ALTER TABLE leases ADD COLUMN schema text")
    op.execute(LEADER)
    for statement in FUNCTIONS.split(";;\n"):
        op.execute(statement)

    # Its body is the one of before, except for this.
    op.execute("""
        DO $$ BEGIN
            EXECUTE replace(pg_get_functiondef('rename_group'::regproc),
                            'WHERE serving -> ''resource_groups'' ?',
                            'WHERE as_array(serving -> ''resource_groups'') ?');
        END $$
    """)
