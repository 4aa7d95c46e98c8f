"""Names of adapters belong to projects, as those of their endpoints do.

An endpoint whose adapter has a name of another project is neither inserted nor changed, as if the
name were in use. While an endpoint has an adapter, ``used_at`` of its name is infinite, so nobody
else can take it.
"""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

NAMES = """
CREATE FUNCTION adapter_names(endpoint text, serving jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(endpoint || ':' || (a ->> 'name')), '{}')
    FROM jsonb_array_elements(serving -> 'adapters') a
$$
"""

TAKE = """
CREATE FUNCTION take_adapter_names() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    names text[] := CASE WHEN NEW.deleted_at IS NULL THEN adapter_names(NEW.name, NEW.serving) ELSE '{}' END;
    taken integer;
BEGIN
    INSERT INTO model_names AS m (name, project, used_at)
    SELECT DISTINCT n, NEW.project, 'infinity'::timestamptz FROM unnest(names) n
    ON CONFLICT (name) DO UPDATE SET project = excluded.project, used_at = excluded.used_at
    WHERE m.project = excluded.project OR (
        m.used_at < now() - interval '30 days'
        AND NOT EXISTS (SELECT FROM endpoints e WHERE e.name = m.name AND e.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM sessions s WHERE s.name = m.name AND s.type = 'inference'
                        AND s.endpoint_id IS NULL AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')));
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken < cardinality(names) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE model_names SET used_at = now()
        WHERE project = OLD.project AND name = ANY (adapter_names(OLD.name, OLD.serving))
          AND name <> ALL (names);
    END IF;
    RETURN NEW;
END $$
"""

TRIGGERS = """
CREATE TRIGGER endpoints_take_adapters BEFORE INSERT ON endpoints
    FOR EACH ROW WHEN (NEW.serving ? 'adapters') EXECUTE FUNCTION take_adapter_names();
CREATE TRIGGER endpoints_change_adapters BEFORE UPDATE OF serving, deleted_at ON endpoints
    FOR EACH ROW WHEN (OLD.serving ? 'adapters' OR NEW.serving ? 'adapters')
    EXECUTE FUNCTION take_adapter_names()
"""


def upgrade() -> None:
    op.execute(NAMES)
    op.execute(TAKE)
    for statement in TRIGGERS.split(";\n"):
        op.execute(statement)
