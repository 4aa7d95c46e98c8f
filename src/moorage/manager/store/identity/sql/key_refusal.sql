-- Why a key that `key_find` refuses is refused. No row: no key has this secret.
SELECT k.name, k.owner, k.project, k.revoked_at, k.expires_at,
       k.expires_at <= now() AS is_expired,
       k.sha256 <> $1 AND k.previous_until <= now() AS is_replaced,
       CASE WHEN u.archived_at IS NULL THEN u.status ELSE 'archived' END AS user_status,
       CASE WHEN p.archived_at IS NULL THEN p.status ELSE 'archived' END AS project_status
FROM api_keys k
LEFT JOIN users u ON u.name = k.owner
LEFT JOIN projects p ON p.name = k.project
WHERE k.sha256 = $1 OR k.previous_sha256 = $1
