-- An admin key is revoked only if another admin key that never expires remains. All admin keys are locked in one order, so
-- two admins who revoke each other's keys at once are serialized, and the second revocation is refused.
WITH admins AS (
    SELECT id, expires_at FROM api_keys WHERE role = 'admin' AND revoked_at IS NULL ORDER BY id FOR UPDATE
)
UPDATE api_keys k SET revoked_at = now(), revoked_by = $2
WHERE k.name = $1 AND k.revoked_at IS NULL
  AND (k.role <> 'admin' OR EXISTS (SELECT FROM admins a WHERE a.id <> k.id AND a.expires_at IS NULL))
RETURNING id, name, prefix, role, owner AS "user", project, created_at, created_by, expires_at, last_used_at
