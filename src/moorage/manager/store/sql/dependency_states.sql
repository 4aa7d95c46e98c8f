-- Whether what a session of a project ($4) would depend on ($1, with its id in $2 where it is one, and how it must end in
-- $3) has ended so; `why`: it may not be depended upon. It is found and refused as session_create_checked.sql does it.
SELECT s.id, dependency_state(d.condition, s.status, s.result) AS state, s.project,
       CASE WHEN s.id IS NULL THEN 'unknown' WHEN s.project <> $4 THEN 'foreign'
            WHEN d.condition = 'success' AND s.type <> 'batch' THEN 'no-result' END AS why
FROM unnest($1::text[], $2::uuid[], $3::text[]) WITH ORDINALITY AS d(ref, as_id, condition, at)
LEFT JOIN LATERAL (
    SELECT id, status, result, type, project FROM sessions WHERE id = d.as_id OR name = d.ref
    ORDER BY (id = d.as_id) IS TRUE DESC, (status IN ('TERMINATED', 'CANCELLED', 'ERROR')), created_at DESC LIMIT 1) s
ON true
ORDER BY d.at
