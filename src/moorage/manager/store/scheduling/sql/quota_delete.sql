-- $3: the versions that it may have (NULL: any).
DELETE FROM quotas
WHERE scope = $1 AND name = $2 AND ($3::bigint[] IS NULL OR version = ANY ($3)) RETURNING name
