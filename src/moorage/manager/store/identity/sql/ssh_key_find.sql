-- The SSH key with fingerprint $1 for project $2, with the columns of key_find.sql for the API key
-- that registered it, if any: that key acts only in its own project. `use_unrecorded`: last_used_at
-- is more than a minute old.
SELECT s.id, s.name, k.name AS key_name, coalesce(k.granted_role, k.role) AS role,
       s.user_name AS owner, p.name AS project, k.scopes, k.models, k.resource_groups,
       k.max_priority, k.kept_priority, u.platform_role, m.role AS member_role,
       p.max_priority AS project_priority, p.resource_groups AS project_groups,
       s.last_used_at IS NULL OR s.last_used_at < now() - interval '1 minute' AS use_unrecorded
FROM user_ssh_keys s
JOIN users u ON u.name = s.user_name AND u.status = 'active'
LEFT JOIN api_keys k ON k.id = s.key_id
JOIN projects p ON p.name = coalesce(k.project, $2) AND p.status = 'active'
LEFT JOIN memberships m ON m.user_name = s.user_name AND m.project = p.name
WHERE s.fingerprint = $1
  AND (s.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
