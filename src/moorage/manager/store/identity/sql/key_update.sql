-- $15: the versions that it may have now (NULL: any). Replace the restrictions and the expiry of a
-- key ($1) of these projects ($2) and this user ($3). An admin key gets an expiry only if another
-- one remains that never expires and whose user is an active administrator (locked as in
-- key_revoke.sql). The priority that it may request beyond the ceiling of its role
-- (`kept_priority`) is lowered with its highest priority, and never raised.
WITH admins AS (
    SELECT k.id, k.owner, k.expires_at FROM api_keys k
    JOIN users u ON u.name = k.owner AND u.status = 'active' AND u.platform_role = 'admin'
    WHERE k.role = 'admin' AND k.revoked_at IS NULL ORDER BY k.id FOR UPDATE
)
UPDATE api_keys k
SET scopes = $4::text[], models = $5::text[], resource_groups = $6::text[], max_priority = $7,
    kept_priority = CASE WHEN k.kept_priority IS NOT NULL THEN least(k.kept_priority, $7) END,
    requests_per_minute = $8, tokens_per_minute = $9, concurrent_requests = $10,
    max_body_bytes = $11, max_time_s = $12, max_per_session = $13, expires_at = $14
WHERE k.name = $1 AND ($15::bigint[] IS NULL OR k.version = ANY ($15)) AND k.revoked_at IS NULL
  AND ($2::text[] IS NULL OR (k.project = ANY ($2) AND k.role <> 'admin'))
  AND ($3::text IS NULL OR k.owner = $3)
  AND (k.role <> 'admin' OR $14::timestamptz IS NULL
       OR EXISTS (SELECT FROM admins a WHERE a.id <> k.id AND a.expires_at IS NULL))
RETURNING id, name, prefix, coalesce(granted_role, role) AS role, owner AS "user", project, scopes,
          models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
          concurrent_requests, max_body_bytes, max_time_s, max_per_session, created_at,
          created_by, expires_at, last_used_at, previous_until, version
