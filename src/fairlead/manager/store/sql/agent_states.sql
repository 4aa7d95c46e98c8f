-- The agents of a group with all their slots, for a snapshot.
SELECT a.id, a.resource_group, a.status = 'ALIVE' AND NOT a.draining AS available, a.runtimes, a.engines,
       c.slot, c.device_id, c.offered, c.used, c.healthy
FROM agents a LEFT JOIN agent_slots c ON c.agent_id = a.id
WHERE a.resource_group = $1
ORDER BY a.id, c.slot, c.device_id
