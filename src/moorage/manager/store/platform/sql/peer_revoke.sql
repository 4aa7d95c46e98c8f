-- Revoke the $1 named $2, for actor $3. `sessions`: the sessions on a revoked agent, whose routes
-- disappear with it.
WITH revoked AS (
    UPDATE link_peers SET revoked_at = now(), revoked_by = $3
    WHERE kind = $1 AND name = $2 AND revoked_at IS NULL
    RETURNING id, kind, name, resource_group, joined_at, certificate_until, token_id AS token
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor) SELECT name, 'revoke', $3 FROM revoked
    WHERE kind = 'agent'
), withdrawn AS (
    -- Whoever has the peer's files may also have its join token, which may admit others.
    UPDATE join_tokens j SET removed_at = now(), removed_by = $3 FROM revoked r
    WHERE j.id = r.token AND j.removed_at IS NULL
)
SELECT r.*, ARRAY(
    SELECT DISTINCT k.session_id FROM kernels k
    WHERE r.kind = 'agent' AND k.agent_id = r.name AND k.status NOT IN (:TERMINAL)) AS sessions
FROM revoked r
