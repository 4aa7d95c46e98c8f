-- Keys that are not revoked, those that have expired among them: all, or the one of this name.
SELECT id, name, prefix, role, owner AS "user", project, created_at, created_by, expires_at, last_used_at
FROM api_keys WHERE revoked_at IS NULL AND ($1::text IS NULL OR name = $1) ORDER BY name
