-- The agent on which session $3 ran, if output $4 of it is an input of kernel $2, which agent $1
-- should run. For a session that shares another session's run, it is the agent of the other
-- session.
SELECT r.agent_id
FROM kernels k JOIN sessions s ON s.id = k.session_id
JOIN session_dependencies d ON d.session_id = s.id AND d.condition = 'success'
JOIN pipeline_steps t ON t.session_id = d.depends_on
JOIN sessions o ON o.id = d.depends_on AND coalesce(o.adopted_from, o.id) = $3::uuid
JOIN sessions q ON q.id = $3::uuid
JOIN kernels r ON r.session_id = q.id AND r.attempt = q.attempt AND r.cluster_role = 'main'
WHERE k.id = $2::uuid AND k.agent_id = $1 AND k.status NOT IN (:TERMINAL)
  AND r.agent_id IS NOT NULL
  AND EXISTS (SELECT FROM jsonb_array_elements(as_array(s.files -> 'inputs')) i
              WHERE as_integer(i -> 0) = t.position AND i ->> 1 = $4)
LIMIT 1
