-- name: secret_put
-- Set a secret. No row: the caller's keyring ($6) lacks a key with which another secret is
-- encrypted.
INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by)
SELECT $1, $2, $3, $4, $5, $5
WHERE NOT EXISTS (SELECT FROM secrets WHERE key_id <> ALL ($6::text[]))
ON CONFLICT (project, name) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed,
    version = secrets.version + 1, changed_at = now(), changed_by = excluded.changed_by,
    deleted_at = NULL
RETURNING project, name, version, created_at, created_by, changed_at, changed_by

-- name: secret_list
SELECT project, name, version, created_at, created_by, changed_at, changed_by FROM secrets
WHERE project = $1 AND deleted_at IS NULL

-- name: secret_delete
-- Sessions that refer to it keep it until they end (secrets_delete_unused).
UPDATE secrets SET deleted_at = now() WHERE project = $1 AND name = $2 AND deleted_at IS NULL
RETURNING project, name, version, created_at, created_by, changed_at, changed_by

-- name: secret_endpoints
-- The endpoints of a project ($1) whose routes contain the secret $2: the key of a provider.
SELECT id FROM endpoints WHERE project = $1 AND deleted_at IS NULL AND serving ? 'routing'
  AND jsonb_path_exists(serving, '$.routing.fallbacks[*] ? (@.secret == $name)',
                        jsonb_build_object('name', $2::text))

-- name: secret_key_ids
SELECT DISTINCT key_id FROM secrets ORDER BY key_id

-- name: secrets_sealed_before
-- Secrets that are encrypted with a key other than the newest, $1.
SELECT project, name, version, key_id, sealed FROM secrets WHERE key_id <> $1 ORDER BY project, name

-- name: secret_reseal
-- No row: the secret was set in the meantime, and is therefore already encrypted with the newest
-- key.
UPDATE secrets SET key_id = $5, sealed = $6
WHERE project = $1 AND name = $2 AND version = $3 AND key_id = $4
RETURNING name

-- name: secrets_delete_unused
-- Deleted secrets to which no live session or endpoint refers. The hour covers a session whose
-- creation had found the secret when it was deleted.
DELETE FROM secrets x WHERE deleted_at < now() - interval '1 hour'
  AND NOT EXISTS (
    SELECT FROM sessions s WHERE s.project = x.project AND s.status NOT IN (:TERMINAL)
      AND EXISTS (SELECT FROM jsonb_each_text(as_object(s.spec -> 'secret_env')) e
                  WHERE e.value = x.name))
  AND NOT EXISTS (
    SELECT FROM endpoints p WHERE p.project = x.project AND p.deleted_at IS NULL
      AND (EXISTS (SELECT FROM jsonb_each_text(as_object(p.spec -> 'secret_env')) e
                   WHERE e.value = x.name)
           OR jsonb_path_exists(p.serving, '$.routing.fallbacks[*] ? (@.secret == $name)',
                                jsonb_build_object('name', x.name))))
RETURNING name

-- name: secrets_discard
-- Delete the secrets that none of the keys $1 can decrypt.
DELETE FROM secrets WHERE key_id <> ALL ($1::text[]) RETURNING project, name
