DELETE FROM quotas WHERE scope = $1 AND name = $2 RETURNING name
