-- Find a key by the unique indexes on sha256 and previous_sha256. `use_unrecorded`: last_used_at is
-- more than a minute old.
SELECT k.id, k.name, coalesce(k.granted_role, k.role) AS role, k.owner, k.project, k.scopes,
       k.models, k.resource_groups, k.max_priority, k.kept_priority, k.max_time_s,
       k.max_per_session, u.platform_role, m.role AS member_role,
       p.max_priority AS project_priority,
       p.resource_groups AS project_groups,
       k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute' AS use_unrecorded
FROM (SELECT id FROM api_keys WHERE sha256 = $1
      UNION ALL SELECT id FROM api_keys WHERE previous_sha256 = $1 AND previous_until > now()) found
JOIN api_keys k USING (id)
JOIN users u ON u.name = k.owner AND u.status = 'active'
JOIN projects p ON p.name = k.project AND p.status = 'active'
LEFT JOIN memberships m ON m.user_name = k.owner AND m.project = k.project
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
