-- An agent's inventory. Capacity never falls below what is in use; `offered` is what it says now, and a slot it
-- no longer offers keeps its row with offered = 0.
WITH input AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bool[])
    AS i(slot, device_id, offered, model, memory_bytes, healthy)
), put AS (
    INSERT INTO agent_slots AS c (agent_id, slot, device_id, offered, capacity, model, memory_bytes, healthy)
    SELECT $1, slot, device_id, offered, offered, model, memory_bytes, healthy FROM input
    ON CONFLICT (agent_id, slot, device_id) DO UPDATE SET
        offered = excluded.offered, capacity = greatest(excluded.offered, c.used),
        model = excluded.model, memory_bytes = excluded.memory_bytes, healthy = excluded.healthy
    WHERE (c.offered, c.model, c.memory_bytes, c.healthy)
          IS DISTINCT FROM (excluded.offered, excluded.model, excluded.memory_bytes, excluded.healthy)
)
UPDATE agent_slots c SET offered = 0, capacity = c.used
WHERE c.agent_id = $1 AND c.offered > 0
  AND NOT EXISTS (SELECT FROM input i WHERE i.slot = c.slot AND i.device_id = c.device_id)
