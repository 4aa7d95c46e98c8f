-- Set a secret. No row: the caller's keyring ($6) lacks a key with which another secret is
-- encrypted.
INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by)
SELECT $1, $2, $3, $4, $5, $5
WHERE NOT EXISTS (SELECT FROM secrets WHERE key_id <> ALL ($6::text[]))
ON CONFLICT (project, name) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed,
    version = secrets.version + 1, changed_at = now(), changed_by = excluded.changed_by,
    deleted_at = NULL
RETURNING project, name, version, created_at, created_by, changed_at, changed_by
