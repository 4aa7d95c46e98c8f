-- Facts about the user ($1) and project ($2) of a key to be created.
SELECT u.name IS NOT NULL AS known, u.platform_role, m.role AS member_role
FROM (SELECT) one LEFT JOIN users u ON u.name = $1
LEFT JOIN memberships m ON m.user_name = $1 AND m.project = $2
