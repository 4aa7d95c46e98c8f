-- Keys that are not revoked, including expired ones: all, or the one of name $1.
SELECT id, name, prefix, role, owner AS "user", project, created_at, created_by, expires_at, last_used_at
FROM api_keys WHERE revoked_at IS NULL AND ($1::text IS NULL OR name = $1) ORDER BY name
