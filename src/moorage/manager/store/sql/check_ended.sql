-- Kernels that outlive their session. One that is TERMINATING is on its way; the kernels of a silent agent wait for it.
SELECT k.id::text AS subject,
       'it is ' || k.status || ' on ' || coalesce(k.agent_id, 'no agent') || ', its session ' || s.id || ' is ' || s.status AS detail
FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE s.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
  AND k.status NOT IN ('TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY 1 LIMIT 1000
