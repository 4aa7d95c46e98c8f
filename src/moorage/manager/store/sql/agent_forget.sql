-- An agent ($1) that is silent is nobody's any more: whoever comes under its id is welcome, but not by the certificate
-- that it had (who asked: $2). What it held stays fenced until somebody does. No row for one that is alive, or not
-- known. An empty incarnation is no agent's: it is not listed.
WITH forgotten AS (
    UPDATE agents SET status = 'LOST', identity = '', incarnation = '', stream = 0,
        cordon = '', cordoned_by = '', cordoned_at = NULL, stop_at = NULL
    WHERE id = $1 AND status <> 'ALIVE' AND incarnation <> ''
    RETURNING id
), noted AS (
    INSERT INTO agent_history (agent_id, event, actor) SELECT id, 'forget', $2 FROM forgotten
), revoked AS (
    UPDATE link_peers m SET revoked_at = now(), revoked_by = $2 FROM forgotten f
    WHERE m.kind = 'agent' AND m.name = f.id AND m.revoked_at IS NULL
)
SELECT id FROM forgotten
