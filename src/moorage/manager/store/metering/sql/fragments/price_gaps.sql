WITH gpus AS (
    SELECT DISTINCT a.resource_group, s.model
    FROM agents a JOIN agent_slots s ON s.agent_id = a.id
    WHERE s.device_id <> '' AND position('.' IN s.slot) > 0
),
offered AS (
    SELECT 'gpu' AS unit, resource_group, model AS device FROM gpus
    UNION
    SELECT unit, a.resource_group, '' FROM agents a, unnest(ARRAY['cpu', 'memory']) AS unit
    UNION
    SELECT unit, '', '' FROM prices WHERE unit NOT IN ('gpu', 'cpu', 'memory')
)
SELECT o.unit, o.resource_group, o.device, extract(epoch FROM min(p.since)) AS begins
FROM offered o
LEFT JOIN prices p ON p.unit = o.unit
    AND (o.resource_group = '' OR p.resource_group IN ('', o.resource_group))
    AND (p.device IN ('', o.device) OR (o.unit = 'gpu' AND device_named(p.device, o.device)))
WHERE o.unit IN (SELECT unit FROM prices)
GROUP BY o.unit, o.resource_group, o.device
HAVING min(p.since) IS NULL OR min(p.since) > now()
ORDER BY o.unit, o.resource_group, o.device
