-- The name $2 if such a project, user or live key ($1) exists, otherwise all names of this kind.
WITH names AS (
    SELECT name FROM projects WHERE $1 = 'project'
    UNION ALL SELECT name FROM users WHERE $1 = 'user'
    UNION ALL SELECT name FROM api_keys WHERE $1 = 'key' AND revoked_at IS NULL
)
SELECT name FROM names WHERE name = $2
UNION ALL SELECT name FROM names WHERE NOT EXISTS (SELECT FROM names WHERE name = $2)
