-- The live kernels of these agents ($1), and whether each should run (index kernels_live_by_agent).
-- agent_orders.sql returns their specs. For some of the agents ($2), also returns kernels that have
-- been given up and still hold allocations (index allocations_held): these must not run either.
-- With $3, also returns kernels that the database does not know, with their sessions (index
-- agents_not_ready): these are kept unless their session has been stopped since.
-- `reload_generation`: the generation of the newest reload request, if any. `suspended`: whether
-- its processes must be stopped.
WITH live AS (
    SELECT agent_id, id, status, session_id, attempt FROM kernels
    WHERE agent_id = ANY ($1::text[]) AND status NOT IN ('PENDING', :TERMINAL)
), held AS (
    SELECT agent_id, kernel_id AS id
    FROM allocations
    WHERE agent_id = ANY ($2::text[]) AND released_at IS NULL
    EXCEPT SELECT agent_id, id FROM live
)
SELECT l.agent_id, l.id, l.status IN (:IN_ORDERS) AS wanted, NULL::uuid AS session_id,
       r.generation AS reload_generation,
       (s.status = 'RUNNING' AND s.suspended_attempt = l.attempt) IS TRUE AS suspended
FROM live l JOIN sessions s ON s.id = l.session_id LEFT JOIN kernel_reloads r ON r.kernel_id = l.id
UNION ALL
SELECT agent_id, id, FALSE, NULL, NULL, FALSE FROM held
UNION ALL
SELECT a.id, as_uuid(u -> 'kernel_id'), TRUE,
       coalesce(as_uuid(u -> 'session_id'), '00000000-0000-0000-0000-000000000000'), NULL, FALSE
FROM agents a, jsonb_array_elements(as_array(a.unknown_kernels)) u
WHERE $3::boolean AND NOT a.ready AND a.id = ANY ($1::text[])
  AND as_uuid(u -> 'kernel_id') IS NOT NULL
  AND NOT EXISTS (SELECT FROM replaced_kernels r JOIN kernels k ON k.id = r.kernel_id
                  WHERE r.id = as_uuid(u -> 'kernel_id') AND k.status IN (:TERMINAL))
ORDER BY id
