-- What ended kernels still hold although their live agent saw them end more than $1 seconds ago. A kernel
-- that was given up unseen is not here: what it holds is fenced until a report shows that it is gone.
SELECT k.id::text AS subject, 'it is ' || k.status || ' since ' || k.status_since || ' and holds '
       || string_agg(a.amount || ' ' || a.slot || ' ' || a.device_id, ', ') || ' of ' || k.agent_id AS detail
FROM kernels k JOIN allocations a ON a.kernel_id = k.id JOIN agents n ON n.id = a.agent_id
WHERE a.released_at IS NULL AND k.status IN ('TERMINATED', 'CANCELLED', 'ERROR')
  AND k.observed IN ('EXITED', 'GONE') AND n.status = 'ALIVE' AND k.status_since < now() - make_interval(secs => $1)
GROUP BY k.id ORDER BY 1 LIMIT 1000
