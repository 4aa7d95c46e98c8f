-- Counts pending sessions that `max_pending_per_user` of a resource group limits, one statement
-- after the other, as lock_pending_quotas does for quotas. `given` is the name by which the caller
-- knows the group, and `name` its current name. Statements call it after lock_pending_quotas, so
-- that all take their locks in the same order.
CREATE OR REPLACE FUNCTION lock_pending_limits(groups text[], owners text[])
RETURNS TABLE (given text, name text, owner text, pending integer, there bigint)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1718775138, k.key) FROM (
        SELECT DISTINCT hashtext(l.resource_group || ' ' || i.owner) AS key
        FROM unnest(groups, owners) i(given, owner)
        JOIN resource_groups g ON g.name = i.given
        JOIN group_limits l ON l.resource_group = coalesce(g.renamed_to, g.name)
        WHERE l.max_pending_per_user IS NOT NULL
        ORDER BY key) k;
    RETURN QUERY
    SELECT i.given, l.resource_group, i.owner, l.max_pending_per_user, (
        SELECT count(*) FROM (
            SELECT FROM sessions s
            WHERE s.owner = i.owner AND s.resource_group = l.resource_group
              AND s.status = 'PENDING' AND s.type <> 'system'
            LIMIT l.max_pending_per_user) w)
    FROM (SELECT DISTINCT * FROM unnest(groups, owners) u(given, owner)) i
    JOIN resource_groups g ON g.name = i.given
    JOIN group_limits l ON l.resource_group = coalesce(g.renamed_to, g.name)
    WHERE l.max_pending_per_user IS NOT NULL;
END
$$;
