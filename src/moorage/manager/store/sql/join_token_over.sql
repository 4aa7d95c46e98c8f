-- Why nothing more can join by a token ($1), as a kind ($2) of that name ($3): no row where there is none.
SELECT t.kind, t.uses, t.expires_at, t.removed_at IS NOT NULL AS removed, t.expires_at <= now() AS expired,
       t.used >= t.uses AS used_up,
       EXISTS (SELECT FROM link_peers m WHERE m.kind = $2 AND m.name = $3 AND m.revoked_at IS NULL) AS taken
FROM join_tokens t WHERE t.verifier = $1
