-- Groups with pending sessions whose begin time and backoff have passed, and whether any quota, or
-- limit of a group or QoS, limits usage. Most sessions have no such time, so the oldest of them is
-- found quickly (index sessions_pending); the others are found by their time (sessions_begin).
SELECT g.name, g.options,
       EXISTS (SELECT FROM quotas q
               WHERE q.slots <> '{}' OR q.sessions IS NOT NULL OR q.system_sessions IS NOT NULL
                 OR q.node_seconds IS NOT NULL)
       OR EXISTS (SELECT FROM group_limits l
                  WHERE l.max_per_user <> '{}' OR l.max_running_per_user IS NOT NULL)
       OR EXISTS (SELECT FROM qos q
                  WHERE q.max_per_user <> '{}' OR q.max_running_per_user IS NOT NULL
                    OR q.max_total <> '{}' OR q.max_running IS NOT NULL) AS has_quotas
FROM resource_groups g
WHERE (SELECT s.id FROM sessions s
       WHERE s.status = 'PENDING' AND s.resource_group = g.name
         AND coalesce(s.not_before, s.starts_at) IS NULL
       ORDER BY s.created_at, s.id LIMIT 1) IS NOT NULL
   OR EXISTS (SELECT FROM sessions s
              WHERE s.status = 'PENDING' AND s.resource_group = g.name
                AND (s.not_before IS NOT NULL OR s.starts_at IS NOT NULL)
                AND greatest(s.not_before, s.starts_at) <= now())
ORDER BY g.name
