SELECT sha256, expires_at, owner AS "user", project, role = 'admin' AS admin FROM api_keys
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) ORDER BY sha256
