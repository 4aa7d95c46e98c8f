-- Groups with pending sessions whose begin time and backoff have passed, and whether any quota limits usage.
SELECT g.name, g.options, EXISTS (SELECT FROM quotas q WHERE q.slots <> '{}' OR q.sessions IS NOT NULL) AS has_quotas
FROM resource_groups g
WHERE EXISTS (SELECT FROM sessions s WHERE s.status = 'PENDING' AND s.resource_group = g.name
              AND (s.not_before IS NULL OR s.not_before <= now()) AND (s.starts_at IS NULL OR s.starts_at <= now()))
ORDER BY g.name
