-- Delete the secrets that none of the keys $1 can decrypt.
DELETE FROM secrets WHERE key_id <> ALL ($1::text[]) RETURNING project, name
