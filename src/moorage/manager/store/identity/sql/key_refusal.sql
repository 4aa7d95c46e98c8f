-- Why a key that `key_find` refuses is refused. No row: no key has this secret.
SELECT k.name, k.owner, k.project, k.revoked_at, k.expires_at,
       k.expires_at <= now() AS is_expired,
       k.sha256 <> $1 AND k.previous_until <= now() AS is_replaced,
       u.status AS user_status, p.status AS project_status
FROM api_keys k
LEFT JOIN users u ON u.name = k.owner
LEFT JOIN projects p ON p.name = k.project
WHERE k.sha256 = $1 OR k.previous_sha256 = $1
