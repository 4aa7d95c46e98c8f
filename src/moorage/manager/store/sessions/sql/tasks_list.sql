-- Attempts of a session's tasks that were given to a kernel. A task whose kernel has ended without
-- a word about it is LOST.
SELECT t.number, t.attempt,
       CASE WHEN t.state = 'GIVEN' AND k.status IN (:TERMINAL) THEN 'LOST' ELSE t.state END
           AS state,
       t.exit_code, t.started_at, t.seconds, t.detail, k.agent_id, t.output,
       w.lines[t.number - w.first + 1] AS line
FROM session_tasks t
JOIN sessions s ON s.id = t.session_id
LEFT JOIN kernels k ON k.id = t.kernel_id
LEFT JOIN task_lines w ON w.digest = s.spec #>> '{tasks,digest}'
     AND w.first = (t.number - 1) / 1000 * 1000 + 1
WHERE t.session_id = $1
