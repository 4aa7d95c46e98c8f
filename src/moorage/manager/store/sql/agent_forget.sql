-- Forget a silent agent ($1; actor: $2). Its id is free for another agent, but its certificate is revoked. Its allocations
-- stay fenced until an agent reports under that id. No row for an agent that is ALIVE or unknown. An empty incarnation
-- marks a forgotten agent, which is not listed.
WITH forgotten AS (
    UPDATE agents SET status = 'LOST', identity = '', incarnation = '', stream = 0,
        cordon = '', cordoned_by = '', cordoned_at = NULL, stop_at = NULL
    WHERE id = $1 AND status <> 'ALIVE' AND incarnation <> ''
    RETURNING id
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor) SELECT id, 'forget', $2 FROM forgotten
), revoked AS (
    UPDATE link_peers m SET revoked_at = now(), revoked_by = $2 FROM forgotten f
    WHERE m.kind = 'agent' AND m.name = f.id AND m.revoked_at IS NULL
)
SELECT id FROM forgotten
