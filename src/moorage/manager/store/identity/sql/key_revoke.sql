-- Revoke a key of these projects ($3) and this user ($4). An admin key is revoked only if another
-- one remains that never expires and whose user is an active administrator. All of these are locked
-- in the same order, so two admins who revoke each other's keys at the same time are serialized,
-- and the second revocation is refused.
WITH admins AS (
    SELECT k.id, k.owner, k.expires_at FROM api_keys k
    JOIN users u ON u.name = k.owner AND u.status = 'active' AND u.platform_role = 'admin'
    WHERE k.role = 'admin' AND k.revoked_at IS NULL ORDER BY k.id FOR UPDATE
)
UPDATE api_keys k SET revoked_at = now(), revoked_by = $2
WHERE k.name = $1 AND k.revoked_at IS NULL
  AND ($3::text[] IS NULL OR (k.project = ANY ($3) AND k.role <> 'admin'))
  AND ($4::text IS NULL OR k.owner = $4)
  AND (k.role <> 'admin'
       OR EXISTS (SELECT FROM admins a WHERE a.id <> k.id AND a.expires_at IS NULL))
RETURNING id, name, prefix, coalesce(granted_role, role) AS role, owner AS "user", project, scopes,
          models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
          concurrent_requests, max_body_bytes, max_time_s, max_per_session, created_at,
          created_by, expires_at, last_used_at, previous_until, version
