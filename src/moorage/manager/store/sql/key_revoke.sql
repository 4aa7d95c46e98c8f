-- An admin's key goes only if another one stays that never expires. All admins' keys are locked in one order, so two
-- that revoke each other's at once are told so one after the other.
WITH admins AS (
    SELECT id, expires_at FROM api_keys WHERE role = 'admin' AND revoked_at IS NULL ORDER BY id FOR UPDATE
)
UPDATE api_keys k SET revoked_at = now(), revoked_by = $2
WHERE k.name = $1 AND k.revoked_at IS NULL
  AND (k.role <> 'admin' OR EXISTS (SELECT FROM admins a WHERE a.id <> k.id AND a.expires_at IS NULL))
RETURNING id, name, prefix, role, owner AS "user", project, created_at, created_by, expires_at, last_used_at
