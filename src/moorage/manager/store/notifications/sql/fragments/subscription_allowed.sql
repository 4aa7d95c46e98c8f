(SELECT CASE
     WHEN s.project IS NULL THEN u.status = 'active' AND u.platform_role IS NOT NULL
     WHEN s.shared THEN p.status = 'active'
     ELSE u.status = 'active' AND p.status = 'active'
         AND (u.platform_role IS NOT NULL OR EXISTS (
             SELECT FROM memberships m WHERE m.project = s.project AND m.user_name = s.user_name))
     END
 FROM users u LEFT JOIN projects p ON p.name = s.project WHERE u.name = s.user_name)
