-- The autoscaled endpoints whose load changed after $1, and the time for the next query. Every
-- statement that changes a load is short, so that changes become visible within the second that is
-- subtracted. It uses subqueries, so that each change is looked up (indexes model_loads_changed,
-- engine_loads_changed): a join might start from all endpoints.
SELECT now() - interval '1 s' AS next, ARRAY(
    SELECT found.id FROM (
        SELECT (SELECT e.id FROM endpoints e
                WHERE e.name = l.model AND e.deleted_at IS NULL AND e.serving ? 'autoscale') AS id
        FROM model_loads l WHERE l.changed_at > $1
        UNION
        SELECT (SELECT e.id FROM kernels k JOIN sessions s ON s.id = k.session_id
                JOIN endpoints e ON e.id = s.endpoint_id
                WHERE k.id = l.kernel_id AND e.deleted_at IS NULL AND e.serving ? 'autoscale')
        FROM engine_loads l WHERE l.changed_at > $1) found
    WHERE found.id IS NOT NULL) AS endpoints
