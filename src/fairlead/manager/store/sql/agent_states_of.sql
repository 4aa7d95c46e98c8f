-- Some agents with all their slots, whatever their group: those of a snapshot that may have changed.
SELECT a.id, a.resource_group, a.status = 'ALIVE' AND NOT a.draining AS available, a.runtimes, a.engines,
       c.slot, c.device_id, c.offered, c.used, c.healthy
FROM agents a LEFT JOIN agent_slots c ON c.agent_id = a.id
WHERE a.id = ANY ($1::text[])
ORDER BY a.id, c.slot, c.device_id
