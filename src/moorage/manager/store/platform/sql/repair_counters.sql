-- Set usage counters (of agents $1; NULL: of all) to the sum of allocations. A slot that changes
-- concurrently is skipped: `used` must still have the value that was compared with the sum.
WITH wrong AS (
    SELECT c.agent_id, c.slot, c.device_id, c.used, coalesce(h.held, 0) AS held
    FROM agent_slots c LEFT JOIN (
        SELECT agent_id, slot, device_id, sum(amount)::bigint AS held FROM allocations
        WHERE released_at IS NULL AND ($1::text[] IS NULL OR agent_id = ANY ($1))
        GROUP BY 1, 2, 3) h USING (agent_id, slot, device_id)
    WHERE c.used <> coalesce(h.held, 0) AND ($1::text[] IS NULL OR c.agent_id = ANY ($1))
)
UPDATE agent_slots c SET used = w.held, capacity = greatest(c.offered, w.held)
FROM wrong w
WHERE (c.agent_id, c.slot, c.device_id) = (w.agent_id, w.slot, w.device_id) AND c.used = w.used
RETURNING c.agent_id || ' ' || c.slot || ' ' || c.device_id AS subject
