-- A key that anyone registered without a proof is replaced. No row: the key is registered with a
-- proof. Raises a unique violation if the user has another key with this name.
INSERT INTO user_ssh_keys
    AS s (id, user_name, name, key_id, fingerprint, public_key, created_by, proved)
VALUES ($1, $2, $3, $4, $5, $6, $7, true)
ON CONFLICT (fingerprint) DO UPDATE
SET id = excluded.id, user_name = excluded.user_name, name = excluded.name,
    key_id = excluded.key_id, created_by = excluded.created_by, created_at = now(),
    last_used_at = NULL, proved = true
WHERE NOT s.proved
RETURNING id
