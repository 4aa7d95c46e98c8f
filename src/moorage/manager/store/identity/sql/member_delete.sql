DELETE FROM memberships
WHERE ($1::text[] IS NULL OR project = ANY ($1)) AND project = $2 AND user_name = $3
RETURNING project, user_name AS "user", role, changed_at, changed_by
