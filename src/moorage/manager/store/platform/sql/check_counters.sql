-- Slots (of agents $1; NULL: of all) whose usage counter differs from the sum of their allocations.
SELECT c.agent_id || ' ' || c.slot || ' ' || c.device_id AS subject,
       'used is ' || c.used || ', but allocations add up to ' || coalesce(h.held, 0) AS detail
FROM agent_slots c LEFT JOIN (
    SELECT agent_id, slot, device_id, sum(amount)::bigint AS held FROM allocations
    WHERE released_at IS NULL AND ($1::text[] IS NULL OR agent_id = ANY ($1))
    GROUP BY 1, 2, 3) h USING (agent_id, slot, device_id)
WHERE c.used <> coalesce(h.held, 0) AND ($1::text[] IS NULL OR c.agent_id = ANY ($1))
ORDER BY 1 LIMIT 1000
