-- Unlink user $1 from the provider, withdraw the memberships that rules granted, and end the
-- console sessions that were opened through the provider. `granted_role`: the role on the platform
-- that is left to withdraw. No row: there is no link.
WITH removed AS (
    DELETE FROM oidc_identities
    WHERE user_name = $1 RETURNING user_name, granted_role, granted_projects
), withdrawn AS (
    DELETE FROM memberships m USING removed r
    WHERE m.user_name = r.user_name AND r.granted_projects ->> m.project = m.role
), ended AS (
    UPDATE console_sessions c SET ended_at = now() FROM removed r
    WHERE c.user_name = r.user_name AND c.by_oidc AND c.ended_at IS NULL
)
SELECT r.user_name, u.email, u.status,
       CASE WHEN u.platform_role = r.granted_role THEN r.granted_role END AS granted_role
FROM removed r JOIN users u ON u.name = r.user_name
