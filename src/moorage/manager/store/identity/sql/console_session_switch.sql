-- Switch console session $1, opened with a password, to project $2. No row: its user neither is a
-- member of the project nor has a role on the platform, or the project is unknown or disabled.
UPDATE console_sessions c SET project = p.name
FROM projects p, users u
WHERE c.id = $1 AND c.key_id IS NULL AND p.name = $2 AND p.status = 'active'
  AND u.name = c.user_name
  AND (u.platform_role IS NOT NULL
       OR EXISTS (SELECT FROM memberships m WHERE m.user_name = u.name AND m.project = p.name))
RETURNING c.id
