-- By the unique index on sha256.
SELECT id, name, role, owner, project FROM api_keys
WHERE sha256 = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
