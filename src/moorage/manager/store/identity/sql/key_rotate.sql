-- A new secret for a key ($1) of these projects ($2) and this user ($3); the previous one stays
-- valid for $6 seconds.
UPDATE api_keys k
SET prefix = $4, sha256 = $5, previous_sha256 = CASE WHEN $6::int > 0 THEN sha256 END,
    previous_until = CASE WHEN $6::int > 0 THEN now() + make_interval(secs => $6::int) END
WHERE k.name = $1 AND k.revoked_at IS NULL
  AND ($2::text[] IS NULL OR (k.project = ANY ($2) AND k.role <> 'admin'))
  AND ($3::text IS NULL OR k.owner = $3)
RETURNING id, name, prefix, coalesce(granted_role, role) AS role, owner AS "user", project, scopes,
          models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
          concurrent_requests, max_body_bytes, max_time_s, max_per_session, created_at,
          created_by, expires_at, last_used_at, previous_until, version
