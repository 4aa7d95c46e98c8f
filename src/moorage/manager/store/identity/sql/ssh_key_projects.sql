-- The user of the SSH key with fingerprint $1, and the active projects for which ssh_key_find.sql
-- finds it.
SELECT s.user_name AS owner, s.name, ARRAY(
    SELECT p.name FROM projects p
    LEFT JOIN memberships m ON m.project = p.name AND m.user_name = s.user_name
    WHERE p.status = 'active'
      AND CASE WHEN coalesce(k.granted_role, k.role) IN ('viewer', 'member', 'project-admin')
               THEN p.name = k.project
               ELSE m.role IS NOT NULL OR u.platform_role IS NOT NULL END
    ORDER BY p.name) AS projects
FROM user_ssh_keys s
JOIN users u ON u.name = s.user_name AND u.status = 'active'
LEFT JOIN api_keys k ON k.id = s.key_id
WHERE s.fingerprint = $1
  AND (s.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
