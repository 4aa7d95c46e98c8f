-- No row: the secret was set in the meantime, and so encrypted with the newest key.
UPDATE secrets SET key_id = $5, sealed = $6
WHERE project = $1 AND name = $2 AND version = $3 AND key_id = $4
RETURNING name
