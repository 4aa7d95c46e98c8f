-- name: join_token_create
-- No row: the resource group ($4) does not exist.
INSERT INTO join_tokens (id, verifier, kind, resource_group, uses, expires_at, created_by)
SELECT $1, $2, $3, current_group($4), $5, $6, $7
WHERE $4::text IS NULL OR EXISTS (SELECT FROM resource_groups WHERE name = $4)
RETURNING id, kind, resource_group, uses, used, expires_at, created_at, created_by

-- name: join_token_list
-- Tokens that can still be used.
SELECT id, kind, resource_group, uses, used, expires_at, created_at, created_by
FROM join_tokens WHERE removed_at IS NULL AND expires_at > now() AND used < uses

-- name: join_token_rejection
-- Why a join token ($1) was rejected for a peer of kind $2 and name $3. No row: the token does not
-- exist.
SELECT t.kind, t.uses, t.expires_at, t.removed_at IS NOT NULL AS removed,
       t.expires_at <= now() AS expired, t.used >= t.uses AS used_up,
       EXISTS (SELECT FROM link_peers m
               WHERE m.kind = $2 AND m.name = $3 AND m.revoked_at IS NULL) AS name_taken
FROM join_tokens t WHERE t.verifier = $1

-- name: join_token_delete
UPDATE join_tokens SET removed_at = now(), removed_by = $2
WHERE id = $1 AND removed_at IS NULL
RETURNING id, kind, resource_group, uses, used, expires_at, created_at, created_by
