-- No row: the resource group ($4) does not exist.
INSERT INTO join_tokens (id, verifier, kind, resource_group, uses, expires_at, created_by)
SELECT $1, $2, $3, current_group($4), $5, $6, $7
WHERE $4::text IS NULL OR EXISTS (SELECT FROM resource_groups WHERE name = $4)
RETURNING id, kind, resource_group, uses, used, expires_at, created_at, created_by
