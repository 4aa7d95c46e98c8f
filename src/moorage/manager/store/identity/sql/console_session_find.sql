-- The console session with SHA-256 $1, with the columns of key_find.sql for the key with which it
-- was opened, if any. `use_unrecorded`: last_seen_at is more than half a minute old.
SELECT c.id, k.name AS key_name, coalesce(k.granted_role, k.role) AS role, c.user_name AS owner,
       c.project, k.scopes, k.models, k.resource_groups, k.max_priority, k.kept_priority,
       k.max_time_s, k.max_per_session, u.platform_role, m.role AS member_role,
       p.max_priority AS project_priority,
       p.resource_groups AS project_groups, c.expires_at, c.idle_s, c.by_oidc,
       c.last_seen_at < now() - interval '30 seconds' AS use_unrecorded
FROM console_sessions c
JOIN users u ON u.name = c.user_name AND u.status = 'active'
JOIN projects p ON p.name = c.project AND p.status = 'active'
LEFT JOIN memberships m ON m.user_name = c.user_name AND m.project = c.project
LEFT JOIN api_keys k ON k.id = c.key_id
WHERE c.sha256 = $1 AND c.ended_at IS NULL AND c.expires_at > now()
  AND c.last_seen_at > now() - make_interval(secs => c.idle_s)
  AND (c.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
