-- Whole devices that nothing uses, on agents that accept work, by group and slot: how many there
-- are, and the most on a single agent.
SELECT resource_group, slot, sum(n)::bigint AS free, max(n) AS largest
FROM (
    SELECT a.resource_group, c.slot, count(*) AS n
    FROM agents a JOIN agent_slots c ON c.agent_id = a.id
    WHERE a.incarnation <> '' AND a.status = 'ALIVE' AND a.ready AND a.cordon = ''
      AND NOT a.draining AND c.device_id <> '' AND c.healthy AND c.used = 0 AND c.offered > 0
    GROUP BY a.id, 1, 2
) of_agent
GROUP BY 1, 2
