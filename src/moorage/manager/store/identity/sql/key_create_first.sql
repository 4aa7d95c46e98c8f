-- The first admin key. No row: a key exists.
INSERT INTO api_keys (id, name, role, granted_role, prefix, sha256, owner)
SELECT $1, 'admin', 'admin', 'admin', $2, $3, 'admin' WHERE NOT EXISTS (SELECT FROM api_keys)
RETURNING id
