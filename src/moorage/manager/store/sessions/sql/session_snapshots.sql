-- The live sessions among these ($1), with the kernels of their current attempt, to be reconciled.
-- The other agents are counted only for sessions whose next transition may depend on them: pending
-- ones, late ones, and ones whose start failed.
WITH present AS (
    SELECT resource_group, count(*) FILTER (WHERE status = 'ALIVE') AS alive, count(*) AS there
    FROM agents WHERE status <> 'LOST' AND NOT draining GROUP BY 1
), found AS MATERIALIZED (
    SELECT s.*, s.status = 'PENDING' OR s.deadline_at <= now() OR (
               s.status IN (:STARTING)
               AND EXISTS (SELECT FROM kernels f WHERE f.session_id = s.id AND f.attempt = s.attempt
                             AND f.status IN (:TERMINAL))) AS needs_agents
    FROM unnest($1::uuid[]) AS requested(id) JOIN sessions s USING (id)
)
SELECT s.id, s.status, s.revision, s.attempt, s.requeues, s.requeued_from, s.spec::text AS spec,
       s.reason, s.detail, s.deadline_at, k.id AS kernel_id, k.status AS kernel_status,
       k.reason AS kernel_reason, k.detail AS kernel_detail, k.exit_code, k.agent_id, k.hostname,
       k.ends_at, now() AS now,
       coalesce(n.status = 'LOST' AND k.status NOT IN (:TERMINAL), false) AS unreachable,
       coalesce(n.status <> 'ALIVE' OR k.observed = 'UNKNOWN', false) AS silent,
       coalesce(s.spec ->> 'overlap', CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)
           = 'allowed' IS TRUE AS overlap,
       CASE WHEN s.status = 'PENDING' AND s.attempt > 1 THEN ARRAY(
           SELECT DISTINCT e.agent_id
           FROM kernels e JOIN agents a ON a.id = e.agent_id AND a.status = 'LOST'
           WHERE e.session_id = s.id AND e.attempt < s.attempt AND e.status NOT IN (:TERMINAL)
           ORDER BY e.agent_id) END AS earlier_lost,
       CASE WHEN s.needs_agents
            THEN coalesce((SELECT alive FROM present g
                           WHERE g.resource_group = s.resource_group), 0)
               - (SELECT count(*) FROM agents a
                  WHERE a.resource_group = s.resource_group AND a.status = 'ALIVE'
                    AND NOT a.draining
                    AND a.id = ANY (ARRAY(
                        SELECT p.agent_id FROM kernels p
                        WHERE p.session_id = s.id
                          AND p.attempt > s.requeued_from AND p.agent_id IS NOT NULL
                          AND (p.status = 'ERROR' OR NOT s.spec ? 'cluster'))))
            ELSE 0 END AS other_agents,
       CASE WHEN s.needs_agents
            THEN coalesce((SELECT there FROM present g
                           WHERE g.resource_group = s.resource_group), 0)
               - (SELECT count(*) FROM agents a
                  WHERE a.resource_group = s.resource_group AND a.status <> 'LOST'
                    AND NOT a.draining
                    AND a.id = ANY (ARRAY(
                        SELECT p.agent_id FROM kernels p
                        WHERE p.session_id = s.id
                          AND p.attempt > s.requeued_from AND p.agent_id IS NOT NULL
                          AND (p.status = 'ERROR' OR NOT s.spec ? 'cluster'))))
            ELSE 0 END AS untried_agents,
       CASE WHEN s.status = 'PENDING' AND s.dependencies > 0 THEN (
           SELECT string_agg(f.problem, '; ' ORDER BY f.id)
           FROM (
               SELECT o.depends_on AS id,
                      format('%s ended %s, needed was %s', o.depends_on, concat_ws(' ', o.status,
                          nullif(o.result, 'UNDEFINED'), nullif(o.reason, '')),
                          o.condition) AS problem
               FROM dependency_outcomes(s.id) o
               WHERE o.state = 'failed' AND o.condition <> 'adopted'
                 AND o.condition NOT LIKE 'any-%'
               UNION ALL
               SELECT min(o.depends_on::text)::uuid,
                      format('none of the %s elements of step %s ended with %s', count(*),
                          substring(o.condition FROM ':(.*)$'),
                          substring(o.condition FROM '^any-(\w+):'))
               FROM dependency_outcomes(s.id) o
               WHERE o.state = 'failed' AND o.condition LIKE 'any-%'
               GROUP BY o.condition
           ) f) END AS failed_dependencies,
       s.adopted_from, o.status AS shared_status, o.result AS shared_result,
       o.reason AS shared_reason, o.detail AS shared_detail
FROM found s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
LEFT JOIN agents n ON n.id = k.agent_id
LEFT JOIN sessions o ON o.id = s.adopted_from
WHERE s.status NOT IN (:TERMINAL)
ORDER BY s.id, k.cluster_role, k.cluster_index
