-- No row: the user does not exist, or the project is not one of these ($1).
INSERT INTO memberships (project, user_name, role, changed_by)
SELECT $2, u.name, $4, $5 FROM users u
WHERE u.name = $3 AND ($1::text[] IS NULL OR $2 = ANY ($1))
  AND EXISTS (SELECT FROM projects WHERE name = $2)
ON CONFLICT (project, user_name)
DO UPDATE SET role = excluded.role, changed_by = excluded.changed_by, changed_at = now()
RETURNING project, user_name AS "user", role, changed_at, changed_by
