-- The name $2 if such a project, user or live key ($1) exists, otherwise all names of this kind
-- without those that are archived.
WITH names AS (
    SELECT name, archived_at FROM projects WHERE $1 = 'project'
    UNION ALL SELECT name, archived_at FROM users WHERE $1 = 'user'
    UNION ALL SELECT name, NULL FROM api_keys WHERE $1 = 'key' AND revoked_at IS NULL
)
SELECT name FROM names WHERE name = $2
UNION ALL SELECT name FROM names
WHERE archived_at IS NULL AND NOT EXISTS (SELECT FROM names WHERE name = $2)
