-- Free the allocations of ended kernels ($1) that their agents no longer report as alive. Each
-- kernel must have been reported by its own agent ($2) through that agent's newest stream ($3); FOR
-- SHARE keeps a newer stream from registering until this commits. Kernels that ended because of
-- their lease are freed here as well, when the agent reports again. Returns the agents that have
-- free capacity again.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS i(kernel_id, agent_id, stream)
), reporting AS (
    SELECT a.id FROM agents a
    JOIN (SELECT DISTINCT agent_id, stream FROM input) i ON a.id = i.agent_id
    WHERE a.stream = i.stream ORDER BY a.id FOR SHARE OF a
), freed AS (
    UPDATE allocations a SET released_at = now()
    FROM input i, kernels k, reporting p
    WHERE p.id = i.agent_id AND a.kernel_id = i.kernel_id AND a.agent_id = i.agent_id
      AND a.released_at IS NULL
      AND k.id = a.kernel_id AND k.status IN (:TERMINAL)
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
),
-- include: freed_counters
SELECT DISTINCT agent_id FROM freed
