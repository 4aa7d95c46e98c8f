-- Give up the kernels of lost agents. Their allocations stay fenced until the agent reports again.
UPDATE kernels k SET status = CASE WHEN k.status = 'TERMINATING' THEN 'TERMINATED' ELSE 'ERROR' END,
    status_since = now(), observed = 'UNKNOWN', reason = 'agent-lost',
    detail = 'agent ' || k.agent_id || ' has been silent for too long'
FROM agents a
WHERE a.id = k.agent_id AND a.status = 'LOST' AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
RETURNING k.session_id
