-- By the unique index on sha256. `use_unrecorded`: last_used_at is more than a minute old.
SELECT id, name, role, owner, project,
       last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS use_unrecorded
FROM api_keys
WHERE sha256 = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
