SELECT a.resource_group, c.slot, sum(c.offered)::bigint AS capacity, sum(c.used)::bigint AS used,
       coalesce(sum(c.offered) FILTER (WHERE NOT c.healthy), 0)::bigint AS unhealthy
FROM agents a JOIN agent_slots c ON c.agent_id = a.id
WHERE a.incarnation <> '' AND a.status <> 'LOST'
GROUP BY 1, 2
