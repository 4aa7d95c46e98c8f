-- Live kernels of ended sessions. TERMINATING kernels are excluded: they are about to end, or wait
-- for a silent agent.
SELECT k.id::text AS subject,
       'it is ' || k.status || ' on ' || coalesce(k.agent_id, 'no agent') || ', its session '
           || s.id || ' is ' || s.status AS detail
FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE s.status IN (:TERMINAL)
  AND k.status NOT IN ('TERMINATING', :TERMINAL)
ORDER BY 1 LIMIT 1000
