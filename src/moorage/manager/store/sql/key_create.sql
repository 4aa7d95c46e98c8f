-- No row: a key of that name exists and is not revoked (index one_live_key_per_name).
INSERT INTO api_keys (id, name, role, prefix, sha256, owner, project, expires_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id, name, prefix, role, owner AS "user", project, created_at, created_by, expires_at, last_used_at
