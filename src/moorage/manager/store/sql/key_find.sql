-- By the unique index on sha256. `unnoted`: that it is in use was not written down for a minute.
SELECT id, name, role, owner, project,
       last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS unnoted
FROM api_keys
WHERE sha256 = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
