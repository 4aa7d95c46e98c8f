-- name: user_create
-- No row: the name is taken.
INSERT INTO users (name, email, status, platform_role, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: user_list
-- All users, or the one named $1. $2: archived ones too.
SELECT u.id, u.name, u.email, u.status, u.platform_role, u.version, u.created_at, u.created_by,
       u.archived_at, u.archived_by,
       o.subject,
       (SELECT coalesce(jsonb_object_agg(m.project, m.role), '{}')
        FROM memberships m
        WHERE m.user_name = u.name) AS projects
FROM users u LEFT JOIN oidc_identities o ON o.user_name = u.name
WHERE ($1::text IS NULL OR u.name = $1) AND ($2 OR u.archived_at IS NULL)

-- name: user_update
-- $5: the versions that it may have now (NULL: any). The last active administrator with a key that
-- does not expire stays an active administrator (admin keys are locked as in key_revoke.sql).
WITH admins AS (
    SELECT k.id, k.owner, k.expires_at FROM api_keys k
    JOIN users u ON u.name = k.owner AND u.status = 'active' AND u.platform_role = 'admin'
    WHERE k.role = 'admin' AND k.revoked_at IS NULL ORDER BY k.id FOR UPDATE
)
UPDATE users t SET email = $2, status = $3, platform_role = $4
WHERE t.name = $1 AND ($5::bigint[] IS NULL OR t.version = ANY ($5)) AND (
    ($3 = 'active' AND $4::text = 'admin') OR t.platform_role IS DISTINCT FROM 'admin'
    OR t.status <> 'active'
    OR EXISTS (SELECT FROM admins a WHERE a.owner <> t.name AND a.expires_at IS NULL))
RETURNING name

-- name: user_archive
-- No row: the user is archived already, does not exist, or is the last active administrator with a
-- key that does not expire (as in user_update). The trigger users_archive refuses one in use.
WITH admins AS (
    SELECT k.id, k.owner, k.expires_at FROM api_keys k
    JOIN users u ON u.name = k.owner AND u.status = 'active' AND u.platform_role = 'admin'
    WHERE k.role = 'admin' AND k.revoked_at IS NULL ORDER BY k.id FOR UPDATE
)
UPDATE users t SET archived_at = now(), archived_by = $2, archived_status = status,
    status = 'disabled'
WHERE t.name = $1 AND t.archived_at IS NULL AND (
    t.platform_role IS DISTINCT FROM 'admin' OR t.status <> 'active'
    OR EXISTS (SELECT FROM admins a WHERE a.owner <> t.name AND a.expires_at IS NULL))
RETURNING name

-- name: user_restore
UPDATE users SET archived_at = NULL, archived_by = '', archived_status = NULL,
    status = archived_status
WHERE name = $1 AND archived_at IS NOT NULL RETURNING name

-- name: user_delete
-- The trigger users_delete refuses one that anything names.
DELETE FROM users WHERE name = $1 RETURNING name
