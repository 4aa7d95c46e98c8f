-- Register a $2 named $3 with the public key $4 under id $5, with the join token $1; its
-- certificate is valid until $6. A repeated request with the same key, after a lost response,
-- returns the same peer and does not use the token again. No row: the token is not valid, or the
-- name is taken.
WITH token AS (
    SELECT id, resource_group FROM join_tokens
    WHERE verifier = $1 AND kind = $2 AND removed_at IS NULL AND expires_at > now()
), repeated AS (
    UPDATE link_peers m SET certificate_until = $6 FROM token t
    WHERE m.token_id = t.id AND m.kind = $2 AND m.name = $3 AND m.public_key = $4
      AND m.revoked_at IS NULL
    RETURNING m.id, m.resource_group
), used AS (
    UPDATE join_tokens j SET used = j.used + 1 FROM token t
    WHERE j.id = t.id AND j.used < j.uses AND j.removed_at IS NULL
      AND NOT EXISTS (SELECT FROM repeated)
      AND NOT EXISTS (SELECT FROM link_peers WHERE kind = $2 AND name = $3 AND revoked_at IS NULL)
    RETURNING j.id, j.resource_group
), created AS (
    INSERT INTO link_peers (id, kind, name, resource_group, token_id, public_key, certificate_until)
    SELECT $5, $2, $3, resource_group, id, $4, $6 FROM used
    RETURNING id, resource_group
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT $3, 'join', 'token:' || u.id, 'as peer ' || $5 FROM used u WHERE $2 = 'agent'
)
SELECT id, resource_group FROM created UNION ALL SELECT id, resource_group FROM repeated
