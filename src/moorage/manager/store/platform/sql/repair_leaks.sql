-- Free allocations of ended kernels (on agents $2; NULL: on all) more than $1 seconds after their
-- agent, which is ALIVE, saw them end.
WITH freed AS (
    UPDATE allocations a SET released_at = now()
    FROM kernels k, agents n
    WHERE k.id = a.kernel_id AND n.id = a.agent_id AND a.released_at IS NULL
      AND k.status IN (:TERMINAL) AND k.observed IN ('EXITED', 'GONE')
      AND n.status = 'ALIVE' AND k.status_since < now() - make_interval(secs => $1)
      AND ($2::text[] IS NULL OR a.agent_id = ANY ($2))
    RETURNING a.kernel_id, a.agent_id, a.slot, a.device_id, a.amount
),
-- include: freed_counters
SELECT DISTINCT kernel_id::text AS subject FROM freed
