-- Record that kernels ($1, on agents $2) have ended for a reason ($5: 'lease-expired' or
-- 'walltime'; $6: the detail, without which the length of the lease is recorded), under the
-- leader's term ($4), unless a report of their agent was stored after $3; FOR SHARE keeps such a
-- report from being stored until this commits. Their allocations stay fenced until the agent
-- reports.
WITH term AS (
    SELECT 1 FROM leases WHERE name = 'leader' AND term = $4 AND expires_at > now() FOR SHARE
), input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS i(id, agent_id, contact)
), silent AS (
    SELECT a.id FROM agents a
    JOIN (SELECT DISTINCT agent_id, contact FROM input) i ON a.id = i.agent_id
    WHERE a.status <> 'ALIVE' AND a.last_seen = i.contact ORDER BY a.id FOR SHARE OF a
)
UPDATE kernels k
SET status = CASE WHEN k.status = 'TERMINATING' OR $5 = 'walltime' THEN 'TERMINATED'
                  ELSE 'ERROR' END,
    status_since = now(), observed = 'GONE',
    reason = CASE WHEN k.reason = '' THEN $5::text ELSE k.reason END,
    detail = CASE WHEN $6::text <> '' THEN $6
                  ELSE 'agent ' || k.agent_id || ' had no contact with a manager for the lease of '
                      || k.lease_s || ' s' END
FROM input i JOIN silent a ON a.id = i.agent_id
WHERE k.id = i.id AND k.agent_id = i.agent_id AND EXISTS (SELECT FROM term)
  AND k.status NOT IN ('PENDING', :TERMINAL)
RETURNING k.session_id
