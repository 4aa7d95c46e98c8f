-- $5: the versions that it may have now (NULL: any).
-- The last active administrator who has a key without expiry stays one (admin keys are locked as in
-- key_revoke.sql).
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
