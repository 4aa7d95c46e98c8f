-- Keys that are not revoked, including expired ones: all, or the one named $1; of these projects
-- ($2) and this user ($3).
SELECT id, name, prefix, coalesce(granted_role, role) AS role, owner AS "user", project, scopes,
       models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
       concurrent_requests, max_body_bytes, max_time_s, max_per_session, created_at,
       created_by, expires_at, last_used_at, previous_until, version
FROM api_keys
WHERE revoked_at IS NULL AND ($1::text IS NULL OR name = $1)
  AND ($2::text[] IS NULL OR project = ANY ($2))
  AND ($3::text IS NULL OR owner = $3)
  -- A platform key belongs to no project.
  AND ($2::text[] IS NULL OR coalesce(granted_role, role) NOT IN ('auditor', 'admin'))
