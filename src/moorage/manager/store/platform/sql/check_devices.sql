-- On agents $1 (NULL: all): slots allocated beyond their capacity, whole devices with a second
-- holder, and live kernels whose allocations were freed.
SELECT c.agent_id || ' ' || c.slot || ' ' || c.device_id AS subject,
       'held ' || sum(a.amount) || ' of ' || c.capacity || ' by kernels '
           || string_agg(a.kernel_id::text, ', ') AS detail
FROM allocations a JOIN agent_slots c USING (agent_id, slot, device_id)
WHERE a.released_at IS NULL AND ($1::text[] IS NULL OR a.agent_id = ANY ($1))
GROUP BY c.agent_id, c.slot, c.device_id, c.capacity
HAVING sum(a.amount) > c.capacity OR (c.device_id <> '' AND sum(a.amount) > 1000)
UNION ALL
SELECT k.id::text,
       k.status || ' on ' || k.agent_id || ', but ' || a.slot || ' ' || a.device_id || ' was freed'
FROM kernels k JOIN allocations a ON a.kernel_id = k.id
WHERE k.status NOT IN ('PENDING', :TERMINAL) AND a.released_at IS NOT NULL
  AND ($1::text[] IS NULL OR k.agent_id = ANY ($1))
ORDER BY 1 LIMIT 1000
