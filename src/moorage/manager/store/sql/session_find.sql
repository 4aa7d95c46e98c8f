-- A session by its id, else by its name: the live one, else the newest (index sessions_by_name). $3: only in these projects.
SELECT id FROM sessions WHERE (id = $1::uuid OR name = $2) AND ($3::text[] IS NULL OR project = ANY ($3))
ORDER BY (id = $1::uuid) IS TRUE DESC, (status IN ('TERMINATED', 'CANCELLED', 'ERROR')), created_at DESC LIMIT 1
