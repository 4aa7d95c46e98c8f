-- A session by its id, else by its name: the live one, else the newest (index sessions_by_name).
SELECT id FROM sessions WHERE id = $1::uuid OR name = $2
ORDER BY (id = $1::uuid) IS TRUE DESC, (status IN ('TERMINATED', 'CANCELLED', 'ERROR')), created_at DESC LIMIT 1
