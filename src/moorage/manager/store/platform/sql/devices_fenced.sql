-- Unhealthy devices of a resource group ($1), of the families $2, which are withheld from
-- placement.
SELECT c.agent_id, c.device_id, c.unhealthy_reason
FROM agents a JOIN agent_slots c ON c.agent_id = a.id
WHERE a.resource_group = $1 AND a.status = 'ALIVE' AND NOT c.healthy AND c.offered > 0
  AND split_part(c.slot, '.', 1) = ANY ($2::text[])
ORDER BY c.agent_id, c.device_id LIMIT 20
