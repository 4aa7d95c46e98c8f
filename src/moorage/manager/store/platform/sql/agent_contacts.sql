-- Agents that may become SUSPECT or LOST, and the times of their last reports: SUSPECT ones, and
-- those that have been silent for a third of the time ($1: seconds, and three of their report
-- intervals) after which they are SUSPECT; `silent_s` is at most that third. If the time of a last
-- report is in the future, the clock has jumped since. `grace_s`: for a silent agent, the longest
-- silence that, as reported, a runtime of its live kernels tolerates (index kernels_live_by_agent).
-- `group_agents`: number of agents in its group.
WITH sizes AS (
    SELECT resource_group, count(*) AS n
    FROM agents
    WHERE status <> 'LOST' AND incarnation <> '' GROUP BY 1
)
SELECT a.id, a.resource_group, a.status, a.last_seen, a.report_interval_s,
       least(greatest(extract(epoch FROM now() - a.last_seen), 0),
             greatest($1, 3 * a.report_interval_s) / 3)::float8 AS silent_s,
       CASE WHEN a.status = 'SUSPECT' AND a.silence_grace_s <> '{}' THEN (
           SELECT max(as_number(a.silence_grace_s -> (s.spec ->> 'runtime')))
           FROM kernels k JOIN sessions s ON s.id = k.session_id
           WHERE k.agent_id = a.id AND k.status NOT IN ('PENDING', :TERMINAL)) END AS grace_s,
       CASE WHEN a.status = 'SUSPECT'
            THEN (SELECT n
                  FROM sizes z
                  WHERE z.resource_group = a.resource_group) END AS group_agents
FROM agents a WHERE a.status <> 'LOST' AND a.incarnation <> '' AND (
    a.status <> 'ALIVE' OR a.last_seen > now()
    OR a.last_seen < now() - make_interval(secs => greatest($1, 3 * a.report_interval_s) / 3))
