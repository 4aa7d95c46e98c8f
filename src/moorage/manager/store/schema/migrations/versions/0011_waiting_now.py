"""Serialized counting of pending sessions where a quota limits them.

A statement sees the rows of its start, so two managers that counted at the same moment both found
capacity and together exceeded the quota. ``waiting_now`` takes one advisory lock per quota, always
in the same order, and holds it until the caller's sessions are committed. It is VOLATILE, so that
it counts what is committed after it got the locks.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

WAITING_NOW = """
CREATE FUNCTION waiting_now(scopes text[], names text[])
RETURNS TABLE (scope text, name text, pending integer, there bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1718775137, l.key) FROM (
        SELECT DISTINCT hashtext(q.scope || ' ' || q.name) AS key
        FROM quotas q
        WHERE (q.scope, q.name) IN (SELECT * FROM unnest(scopes, names)) AND q.pending IS NOT NULL
        ORDER BY key) l;
    RETURN QUERY
    SELECT q.scope, q.name, q.pending, (
        SELECT count(*) FROM (
            SELECT FROM sessions s WHERE q.scope = 'user' AND s.owner = q.name AND s.status = 'PENDING'
            UNION ALL
            SELECT FROM sessions s WHERE q.scope = 'project' AND s.project = q.name AND s.status = 'PENDING'
            UNION ALL
            SELECT FROM sessions s
            WHERE q.scope = 'group' AND s.resource_group = q.name AND s.status = 'PENDING'
            LIMIT q.pending) w)
    FROM quotas q WHERE (q.scope, q.name) IN (SELECT * FROM unnest(scopes, names)) AND q.pending IS NOT NULL;
END
$$
"""


def upgrade() -> None:
    op.execute(WAITING_NOW)
