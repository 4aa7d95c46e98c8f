-- Agents that may become SUSPECT or LOST, and when they were last heard from. `grace_s`: of a silent one, the longest silence
-- that a runtime of its live kernels tolerates by its own account (index kernels_live_by_agent).
SELECT a.id, a.resource_group, a.status, a.last_seen, a.report_interval_s,
       CASE WHEN a.status = 'SUSPECT' AND a.silence_grace_s <> '{}' THEN (
           SELECT max((a.silence_grace_s ->> (s.spec ->> 'runtime'))::float8) FROM kernels k JOIN sessions s ON s.id = k.session_id
           WHERE k.agent_id = a.id AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')) END AS grace_s
FROM agents a WHERE a.status <> 'LOST' AND a.incarnation <> ''
