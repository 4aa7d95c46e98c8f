-- A session by its id, or by its name: the live one, otherwise the newest (index sessions_by_name).
-- $3: only in these projects. If several are live, the one in project $4 is returned.
SELECT id FROM sessions
WHERE (id = $1::uuid OR name = $2) AND removed_at IS NULL
  AND ($3::text[] IS NULL OR project = ANY ($3))
ORDER BY (id = $1::uuid) IS TRUE DESC, (status IN (:TERMINAL)), (project = $4) DESC, created_at DESC
LIMIT 1
