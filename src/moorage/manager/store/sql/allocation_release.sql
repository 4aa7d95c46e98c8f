-- Free what these kernels held ($1), which their agents no longer show alive: only those that have ended, each on
-- the agent that said so ($2), through its newest stream ($3; none becomes the newest meanwhile). Kernels that were given up (agent lost) come through here too, when their agent is
-- heard again. Counters are locked in one order, as in session_place.sql. Gives the agents that have room again.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS i(kernel_id, agent_id, stream)
), speaking AS (
    SELECT a.id FROM agents a JOIN (SELECT DISTINCT agent_id, stream FROM input) i ON a.id = i.agent_id
    WHERE a.stream = i.stream ORDER BY a.id FOR SHARE OF a
), freed AS (
    UPDATE allocations a SET released_at = now()
    FROM input i, kernels k, speaking p
    WHERE p.id = i.agent_id AND a.kernel_id = i.kernel_id AND a.agent_id = i.agent_id AND a.released_at IS NULL
      AND k.id = a.kernel_id AND k.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
), summed AS (
    SELECT agent_id, slot, device_id, sum(amount)::bigint AS amount FROM freed GROUP BY 1, 2, 3
), locked AS (
    SELECT c.agent_id, c.slot, c.device_id, s.amount FROM agent_slots c JOIN summed s USING (agent_id, slot, device_id)
    ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF c
), counted AS (
    UPDATE agent_slots c SET used = c.used - l.amount
    FROM locked l WHERE (c.agent_id, c.slot, c.device_id) = (l.agent_id, l.slot, l.device_id)
)
SELECT DISTINCT agent_id FROM freed
