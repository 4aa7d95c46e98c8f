-- Secrets that are encrypted with a key other than the newest, $1.
SELECT project, name, version, key_id, sealed FROM secrets WHERE key_id <> $1 ORDER BY project, name
