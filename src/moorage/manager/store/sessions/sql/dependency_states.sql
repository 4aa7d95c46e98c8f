-- The states of dependencies that a session of a project ($4) names: $1 name or id, $2 the id if it
-- is one, $3 condition.
-- `why`: the reason for which it is invalid. References are resolved and rejected as in
-- session_create_checked.sql.
SELECT s.id, dependency_state(d.condition, s.status, s.result) AS state, s.project,
       CASE WHEN s.id IS NULL THEN 'unknown' WHEN s.project <> $4 THEN 'foreign'
            WHEN d.condition = 'success' AND s.type <> 'batch' THEN 'no-result' END AS why
FROM unnest($1::text[], $2::uuid[], $3::text[]) WITH ORDINALITY AS d(ref, as_id, condition, at)
LEFT JOIN LATERAL (
    SELECT id, status, result, type, project
    FROM sessions
    WHERE id = d.as_id OR (name = d.ref AND project = $4)
    ORDER BY (id = d.as_id) IS TRUE DESC, (status IN (:TERMINAL)), created_at DESC LIMIT 1) s
ON true
ORDER BY d.at
