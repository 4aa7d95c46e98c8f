-- Grant the user who is subject $2 of issuer $1 the roles $4 in projects, and withdraw those that
-- rules granted before but no longer do. Roles that someone has since changed by hand are left as
-- they are. $3: the role on the platform that rules grant.
WITH identity AS (
    SELECT * FROM oidc_identities WHERE issuer = $1 AND subject = $2 FOR UPDATE
), withdrawn AS (
    DELETE FROM memberships m USING identity i
    WHERE m.user_name = i.user_name AND i.granted_projects ->> m.project = m.role
      AND NOT $4::jsonb ? m.project
), wanted AS (
    SELECT i.user_name, w.key AS project, w.value AS role, i.granted_projects ->> w.key AS granted,
           m.role IS NOT DISTINCT FROM i.granted_projects ->> w.key AS is_ours
    FROM identity i CROSS JOIN jsonb_each_text($4::jsonb) w
    JOIN projects p ON p.name = w.key AND p.archived_at IS NULL
    LEFT JOIN memberships m ON m.project = w.key AND m.user_name = i.user_name
), given AS (
    INSERT INTO memberships (project, user_name, role, changed_by)
    SELECT project, user_name, role, 'oidc' FROM wanted WHERE is_ours
    ON CONFLICT (project, user_name) DO UPDATE
        SET role = excluded.role, changed_by = excluded.changed_by, changed_at = now()
        WHERE memberships.role <> excluded.role
)
UPDATE oidc_identities o
SET last_sign_in_at = now(), granted_role = $3, granted_projects = coalesce(
    (SELECT jsonb_object_agg(project, CASE WHEN is_ours THEN role ELSE granted END) FROM wanted
     WHERE is_ours OR granted IS NOT NULL), '{}')
FROM identity i WHERE o.user_name = i.user_name RETURNING o.user_name
