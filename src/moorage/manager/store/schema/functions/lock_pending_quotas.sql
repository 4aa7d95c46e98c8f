-- Counts pending sessions that a quota limits, one statement after the other. A statement sees the
-- rows of its start, so two managers that counted at the same moment would together exceed the
-- quota. The function takes one advisory lock per quota, always in the same order, and the caller
-- holds them until it commits. It is VOLATILE, so that it counts what is committed after it got the
-- locks.
CREATE OR REPLACE FUNCTION lock_pending_quotas(scopes text[], names text[])
RETURNS TABLE (scope text, name text, pending integer, there bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1718775137, l.key) FROM (
        SELECT DISTINCT hashtext(q.scope || ' ' || q.name) AS key
        FROM quotas q
        WHERE (q.scope, q.name) IN (SELECT * FROM unnest(scopes, names)) AND q.pending IS NOT NULL
        ORDER BY key) l;
    RETURN QUERY
    SELECT q.scope, q.name, q.pending, (
        SELECT count(*) FROM (
            SELECT FROM sessions s
            WHERE q.scope = 'user' AND s.owner = q.name AND s.status = 'PENDING'
            UNION ALL
            SELECT FROM sessions s
            WHERE q.scope = 'project' AND s.project = q.name AND s.status = 'PENDING'
            UNION ALL
            SELECT FROM sessions s
            WHERE q.scope = 'group' AND s.resource_group = q.name AND s.status = 'PENDING'
            LIMIT q.pending) w)
    FROM quotas q
    WHERE (q.scope, q.name) IN (SELECT * FROM unnest(scopes, names)) AND q.pending IS NOT NULL;
END
$$;
