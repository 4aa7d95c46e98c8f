-- The autoscaled endpoints whose load changed after $1, and the time to ask for next. Every statement that changes a load is
-- short, so that changes become visible within the second that is subtracted.
SELECT now() - interval '1 s' AS next, ARRAY(
    SELECT e.id FROM endpoints e
    WHERE e.deleted_at IS NULL AND e.serving ? 'autoscale' AND e.name IN (SELECT model FROM model_loads WHERE changed_at > $1)
    UNION
    SELECT e.id FROM engine_loads l JOIN kernels k ON k.id = l.kernel_id JOIN sessions s ON s.id = k.session_id
    JOIN endpoints e ON e.id = s.endpoint_id AND e.deleted_at IS NULL AND e.serving ? 'autoscale'
    WHERE l.changed_at > $1) AS endpoints
