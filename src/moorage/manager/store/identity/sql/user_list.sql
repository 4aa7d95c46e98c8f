-- All users, or the one named $1.
SELECT u.id, u.name, u.email, u.status, u.platform_role, u.version, u.created_at, u.created_by,
       o.subject,
       (SELECT coalesce(jsonb_object_agg(m.project, m.role), '{}')
        FROM memberships m
        WHERE m.user_name = u.name) AS projects
FROM users u LEFT JOIN oidc_identities o ON o.user_name = u.name
WHERE $1::text IS NULL OR u.name = $1
