-- The rights of a user ($1) in a project ($2), with the columns of key_find.sql. NULL in
-- `user_status` or `project_status`: there is none.
SELECT u.status AS user_status, p.status AS project_status, u.id, $1::text AS owner,
       $2::text AS project, NULL::text[] AS scopes, NULL::text[] AS models,
       NULL::text[] AS resource_groups, NULL::int AS max_priority, NULL::int AS kept_priority,
       NULL::float8 AS max_time_s, NULL::jsonb AS max_per_session, u.platform_role,
       m.role AS member_role, p.max_priority AS project_priority,
       p.resource_groups AS project_groups
FROM (SELECT true) one LEFT JOIN users u ON u.name = $1 LEFT JOIN projects p ON p.name = $2
LEFT JOIN memberships m ON m.user_name = $1 AND m.project = $2
