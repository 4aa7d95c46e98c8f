-- Agents ($1; NULL: all) with the usage of their nodes and devices, and what they offer.
SELECT a.id, a.status, a.resource_group, u.at, u.cpu, u.memory,
       coalesce(u.devices, '[]') AS devices,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                      'slot', c.slot, 'device_id', c.device_id, 'model', c.model,
                                      'memory_bytes', c.memory_bytes, 'capacity', c.offered)
                                  ORDER BY c.slot, c.device_id),
                        '[]')
        FROM agent_slots c WHERE c.agent_id = a.id AND c.offered > 0) AS offers
FROM agents a LEFT JOIN agent_usage u ON u.agent_id = a.id
WHERE ($1::text IS NULL OR a.id = $1) AND a.incarnation <> '' ORDER BY a.id
