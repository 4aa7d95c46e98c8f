SELECT k.id, s.spec ->> 'runtime' AS runtime
FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE k.id = ANY ($1::uuid[])
