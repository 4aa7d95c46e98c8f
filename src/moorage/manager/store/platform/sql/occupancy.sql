-- Slots of agents after $3, ordered by id, at most $4, and the kernels that hold them (index
-- allocations_held). $1: a resource group, $2: an agent; NULL: any.
SELECT a.id, a.resource_group, a.status, a.cordon, a.draining, a.ready,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                'slot', c.slot, 'device_id', c.device_id, 'model', c.model, 'healthy', c.healthy,
                'unhealthy_reason', c.unhealthy_reason, 'capacity', c.offered, 'used', c.used)
                ORDER BY c.slot, c.device_id), '[]')
             FROM agent_slots c WHERE c.agent_id = a.id AND (c.offered > 0 OR c.used > 0)) AS slots,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                'slot', o.slot, 'device_id', o.device_id, 'amount', o.amount, 'kernel_id', k.id,
                'session_id', s.id, 'session', s.name, 'project', s.project, 'user', s.owner,
                'endpoint_id', s.endpoint_id)
                ORDER BY o.taken_at, k.id), '[]')
             FROM allocations o JOIN kernels k ON k.id = o.kernel_id
             JOIN sessions s ON s.id = k.session_id
             WHERE o.agent_id = a.id AND o.released_at IS NULL) AS holders
FROM agents a
WHERE a.incarnation <> '' AND ($1::text IS NULL OR a.resource_group = $1)
  AND ($2::text IS NULL OR a.id = $2)
  AND a.id > $3
ORDER BY a.id LIMIT $4
