-- Whether what a session would depend on ($1, with its id in $2 where it is one, and how it must end in $3) has ended so;
-- no id where there is none of that name. It is found as session_create.sql finds it.
SELECT d.ref, s.id, dependency_state(d.condition, s.status, s.result) AS state
FROM unnest($1::text[], $2::uuid[], $3::text[]) WITH ORDINALITY AS d(ref, as_id, condition, at)
LEFT JOIN LATERAL (
    SELECT id, status, result FROM sessions WHERE id = d.as_id OR name = d.ref
    ORDER BY (id = d.as_id) IS TRUE DESC, (status IN ('TERMINATED', 'CANCELLED', 'ERROR')), created_at DESC LIMIT 1) s
ON true
ORDER BY d.at
