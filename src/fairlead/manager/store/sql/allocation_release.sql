-- Free what ended kernels of an agent held, for all that its report no longer shows alive ($2).
-- Kernels that were given up (agent lost) come through here too, when their agent is heard again.
WITH freed AS (
    UPDATE allocations a SET released_at = now()
    FROM kernels k
    WHERE a.agent_id = $1 AND a.released_at IS NULL AND k.id = a.kernel_id
      AND k.status IN ('TERMINATED', 'CANCELLED', 'ERROR') AND NOT (k.id = ANY ($2::uuid[]))
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
), counted AS (
    UPDATE agent_slots c SET used = c.used - x.amount
    FROM (SELECT agent_id, slot, device_id, sum(amount)::bigint AS amount FROM freed GROUP BY 1, 2, 3) x
    WHERE c.agent_id = x.agent_id AND c.slot = x.slot AND c.device_id = x.device_id
)
SELECT count(*) AS freed FROM freed
