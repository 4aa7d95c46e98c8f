-- Agents that are silent, that report why they accept no new work, or that have unhealthy devices.
-- Only those of resource groups $1, at most $2.
SELECT a.id, a.resource_group, a.status, a.not_ready, c.devices AS faulty_devices
FROM agents a
LEFT JOIN LATERAL (
    SELECT coalesce(array_agg(device_id ORDER BY device_id), '{}') AS devices
    FROM agent_slots WHERE agent_id = a.id AND NOT healthy AND offered > 0
) c ON true
WHERE a.incarnation <> '' AND a.resource_group = ANY ($1::text[])
  AND (a.status <> 'ALIVE' OR (NOT a.ready AND a.not_ready <> '') OR c.devices <> '{}')
ORDER BY a.id LIMIT $2
