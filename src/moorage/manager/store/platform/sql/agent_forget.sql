-- Delete a silent agent ($1; actor: $2). Its id is free for another agent, but its certificate is
-- revoked. No row for an agent that is ALIVE or unknown, or that has kernels which are not known to
-- have ended. If its node is destroyed ($3), all its kernels have ended, and their allocations are
-- released. An empty incarnation marks a forgotten agent, which is not listed.
WITH forgotten AS (
    UPDATE agents SET status = 'LOST', identity = '', incarnation = '', stream = 0,
        cordon = '', cordoned_by = '', cordoned_at = NULL, stop_at = NULL,
        restored_at = NULL, refuses_orders = false, not_ready = '', unknown_kernels = '[]',
        doubtful_jobs = '[]', site_nodes = '[]'
    WHERE id = $1 AND status <> 'ALIVE' AND incarnation <> ''
      AND ($3 OR restored_at IS NULL
             AND NOT EXISTS (SELECT FROM kernels k WHERE k.agent_id = agents.id
                               AND k.status NOT IN ('PENDING', :TERMINAL))
             AND NOT EXISTS (SELECT FROM allocations h
                             WHERE h.agent_id = agents.id AND h.released_at IS NULL))
    RETURNING id
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT id, 'forget', $2, CASE WHEN $3 THEN 'its node was declared destroyed' ELSE '' END
    FROM forgotten
), revoked AS (
    UPDATE link_peers m SET revoked_at = now(), revoked_by = $2 FROM forgotten f
    WHERE m.kind = 'agent' AND m.name = f.id AND m.revoked_at IS NULL
    RETURNING m.token_id
), withdrawn AS (
    UPDATE join_tokens j SET removed_at = now(), removed_by = $2 FROM revoked r
    WHERE j.id = r.token_id AND j.removed_at IS NULL
), ended AS (
    UPDATE kernels k
    SET status = CASE WHEN k.status = 'TERMINATING' THEN 'TERMINATED' ELSE 'ERROR' END,
        status_since = now(), observed = 'GONE',
        reason = CASE WHEN k.reason = '' THEN 'agent-lost' ELSE k.reason END,
        detail = 'the node of agent ' || k.agent_id || ' was declared destroyed'
    FROM forgotten f
    WHERE k.agent_id = f.id AND k.status NOT IN ('PENDING', :TERMINAL)
    RETURNING k.session_id
), freed AS (
    UPDATE allocations a SET released_at = now() FROM forgotten f
    WHERE $3 AND a.agent_id = f.id AND a.released_at IS NULL
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
),
-- include: freed_counters
SELECT f.id, ARRAY(SELECT DISTINCT session_id::text FROM ended) AS sessions,
       (SELECT count(*) FROM ended) AS kernels,
       (SELECT coalesce(jsonb_object_agg(t.slot, t.amount), '{}')
        FROM (SELECT slot, sum(amount)::bigint AS amount FROM freed GROUP BY slot) t) AS released
FROM forgotten f
