-- CTEs that follow `freed`, the allocations that were freed, and update the counters of their
-- slots. The counters are locked in the same order as in session_place.sql, so that the two cannot
-- deadlock.
summed AS (
    SELECT agent_id, slot, device_id, sum(amount)::bigint AS amount FROM freed GROUP BY 1, 2, 3
), locked AS (
    SELECT c.agent_id, c.slot, c.device_id, s.amount
    FROM agent_slots c JOIN summed s USING (agent_id, slot, device_id)
    ORDER BY 1, 2, 3 FOR NO KEY UPDATE OF c
), counted AS (
    UPDATE agent_slots c SET used = c.used - l.amount
    FROM locked l WHERE (c.agent_id, c.slot, c.device_id) = (l.agent_id, l.slot, l.device_id)
)
