-- No row: the key is registered, or the user has one of this name.
INSERT INTO user_ssh_keys (id, user_name, name, key_id, fingerprint, public_key, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING
RETURNING id
