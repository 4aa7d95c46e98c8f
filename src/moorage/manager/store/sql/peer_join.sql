-- Join as $5, a $2 named $3 with the key $4, by the token $1; its certificate is good until $6. Whoever asks again
-- with the same key, because the answer was lost, is the same member, and the token is not used again. No row: the
-- token is not good (any more), or the name is taken.
WITH token AS (
    SELECT id, resource_group FROM join_tokens
    WHERE verifier = $1 AND kind = $2 AND removed_at IS NULL AND expires_at > now()
), again AS (
    UPDATE link_peers m SET certificate_until = $6 FROM token t
    WHERE m.token_id = t.id AND m.kind = $2 AND m.name = $3 AND m.public_key = $4 AND m.revoked_at IS NULL
    RETURNING m.id, m.resource_group
), used AS (
    UPDATE join_tokens j SET used = j.used + 1 FROM token t
    WHERE j.id = t.id AND j.used < j.uses AND j.removed_at IS NULL AND NOT EXISTS (SELECT FROM again)
      AND NOT EXISTS (SELECT FROM link_peers WHERE kind = $2 AND name = $3 AND revoked_at IS NULL)
    RETURNING j.id, j.resource_group
), made AS (
    INSERT INTO link_peers (id, kind, name, resource_group, token_id, public_key, certificate_until)
    SELECT $5, $2, $3, resource_group, id, $4, $6 FROM used
    RETURNING id, resource_group
), noted AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT $3, 'join', 'token:' || u.id, 'as member ' || $5 FROM used u WHERE $2 = 'agent'
)
SELECT id, resource_group FROM made UNION ALL SELECT id, resource_group FROM again
