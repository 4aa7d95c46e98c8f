WITH payers AS (
    SELECT b.scope, b.name, b.unit, b.period, p.resource_groups AS allowed,
           coalesce(p.archived_at, u.archived_at) IS NOT NULL AS archived
    FROM budgets b
    LEFT JOIN projects p ON b.scope = 'project' AND p.name = b.name
    LEFT JOIN users u ON b.scope = 'user' AND u.name = b.name
),
gpus AS (
    SELECT DISTINCT a.resource_group, s.model
    FROM agents a JOIN agent_slots s ON s.agent_id = a.id
    WHERE s.device_id <> '' AND position('.' IN s.slot) > 0
),
doubts AS (
    SELECT scope, name, unit, period, archived,
           unit = 'gpu' AND NOT EXISTS (
               SELECT FROM gpus WHERE allowed IS NULL OR gpus.resource_group = ANY (allowed)
           ) AS without_gpus,
           unit = 'money' AND NOT EXISTS (
               SELECT FROM prices
               WHERE prices.price > 0 AND prices.since <= now()
                 AND (allowed IS NULL OR prices.resource_group = ''
                      OR prices.resource_group = ANY (allowed))
                 AND (prices.unit <> 'gpu' OR EXISTS (
                     SELECT FROM gpus
                     WHERE (allowed IS NULL OR gpus.resource_group = ANY (allowed))
                       AND prices.resource_group IN ('', gpus.resource_group)
                       AND (prices.device IN ('', gpus.model)
                            OR device_named(prices.device, gpus.model))))
           ) AS unpriced
    FROM payers
)
SELECT * FROM doubts WHERE archived OR without_gpus OR unpriced
ORDER BY scope, name, unit, period
