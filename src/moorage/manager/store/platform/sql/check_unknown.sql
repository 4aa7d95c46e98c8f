-- Kernels that agents ($1; NULL: all) run but the database does not know (index agents_not_ready).
SELECT u ->> 'kernel_id' AS subject,
       'it runs on ' || a.id || ', for session ' || (u ->> 'session_id') AS detail
FROM agents a, jsonb_array_elements(as_array(a.unknown_kernels)) u
WHERE NOT a.ready AND u ->> 'kernel_id' IS NOT NULL AND ($1::text[] IS NULL OR a.id = ANY ($1))
ORDER BY 1 LIMIT 1000
