-- Why a join token ($1) was rejected for a peer of kind $2 and name $3. No row: the token does not
-- exist.
SELECT t.kind, t.uses, t.expires_at, t.removed_at IS NOT NULL AS removed,
       t.expires_at <= now() AS expired, t.used >= t.uses AS used_up,
       EXISTS (SELECT FROM link_peers m
               WHERE m.kind = $2 AND m.name = $3 AND m.revoked_at IS NULL) AS name_taken
FROM join_tokens t WHERE t.verifier = $1
