-- Write the inventories of agents ($1; $9: the stream of each; $2 to $8 and $10 to $13: one element
-- per slot). `offered` is what the agent offers now; a slot that it no longer offers keeps its row
-- with offered = 0. Capacity never falls below what is in use. Unchanged rows are not written.
-- Returns the agents whose inventory changed.
--
-- The report of an agent counts only if it came through the agent's newest stream. FOR SHARE keeps
-- a newer stream from registering until this commits.
WITH reporting AS (
    SELECT a.id FROM agents a JOIN unnest($1::text[], $9::bigint[]) AS s(id, stream) ON a.id = s.id
    WHERE a.stream = s.stream ORDER BY a.id FOR SHARE OF a
), input AS (
    SELECT *
    FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
                $8::bool[], $10::int[], $11::text[], $12::text[], $13::text[])
    AS i(agent_id, slot, device_id, offered, model, memory_bytes, healthy, numa, nvlink_domain,
         parent, unhealthy_reason)
), changed AS (
    SELECT i.* FROM input i JOIN reporting p ON p.id = i.agent_id
    LEFT JOIN agent_slots c USING (agent_id, slot, device_id)
    WHERE (c.offered, c.model, c.memory_bytes, c.healthy, c.numa, c.nvlink_domain, c.parent,
           c.unhealthy_reason)
          IS DISTINCT FROM (i.offered, i.model, i.memory_bytes, i.healthy, i.numa, i.nvlink_domain,
                            i.parent, i.unhealthy_reason)
), put AS (
    INSERT INTO agent_slots AS c (agent_id, slot, device_id, offered, capacity, model, memory_bytes,
                                  healthy, numa, nvlink_domain, parent, unhealthy_reason)
    SELECT agent_id, slot, device_id, offered, offered, model, memory_bytes, healthy, numa,
           nvlink_domain, parent, unhealthy_reason
    FROM changed
    ORDER BY agent_id, slot, device_id
    ON CONFLICT (agent_id, slot, device_id) DO UPDATE SET
        offered = excluded.offered, capacity = greatest(excluded.offered, c.used),
        model = excluded.model, memory_bytes = excluded.memory_bytes, healthy = excluded.healthy,
        numa = excluded.numa, nvlink_domain = excluded.nvlink_domain, parent = excluded.parent,
        unhealthy_reason = excluded.unhealthy_reason
    RETURNING c.agent_id
), withdrawn AS (
    UPDATE agent_slots c SET offered = 0, capacity = c.used
    WHERE c.agent_id IN (SELECT id FROM reporting) AND c.offered > 0
      AND NOT EXISTS (SELECT FROM input i
                      WHERE (i.agent_id, i.slot, i.device_id) = (c.agent_id, c.slot, c.device_id))
    RETURNING c.agent_id
)
SELECT agent_id FROM put UNION SELECT agent_id FROM withdrawn
