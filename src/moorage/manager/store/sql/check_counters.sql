-- Slots whose counter differs from a recount of what is held.
SELECT c.agent_id || ' ' || c.slot || ' ' || c.device_id AS subject,
       'used is ' || c.used || ', a recount gives ' || coalesce(h.held, 0) AS detail
FROM agent_slots c LEFT JOIN (
    SELECT agent_id, slot, device_id, sum(amount)::bigint AS held FROM allocations
    WHERE released_at IS NULL GROUP BY 1, 2, 3) h USING (agent_id, slot, device_id)
WHERE c.used <> coalesce(h.held, 0)
ORDER BY 1 LIMIT 1000
