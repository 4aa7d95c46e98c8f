-- The user who is subject $2 of issuer $1, with the user's role on the platform and the role that
-- rules have granted.
SELECT o.user_name, o.granted_role, u.platform_role, u.email, u.status,
       u.archived_at IS NOT NULL AS is_archived
FROM oidc_identities o JOIN users u ON u.name = o.user_name WHERE o.issuer = $1 AND o.subject = $2
