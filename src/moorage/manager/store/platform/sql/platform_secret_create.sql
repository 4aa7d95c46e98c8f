-- No row: another manager has already created the secret, or the caller's keyring ($6) lacks a key
-- with which another secret is encrypted.
INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by)
SELECT $1, $2, $3, $4, $5, $5
WHERE NOT EXISTS (SELECT FROM secrets WHERE key_id <> ALL ($6::text[]))
ON CONFLICT (project, name) DO NOTHING
RETURNING name
