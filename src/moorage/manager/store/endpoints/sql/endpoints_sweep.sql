-- Among the next $2 endpoints after $1, those to examine, and the end of the chunk (NULL if it was
-- the last one). The endpoints to examine are those that lack the desired number of replicas (0 if
-- a budget stops them) in the target revision and on agents that are ALIVE and not drained (index
-- sessions_live_replicas), and those with a waiting replica that may be placed in another group.
-- $3: all endpoints of the chunk except deleted ones without replicas.
WITH
-- include: budget_stops
, chunk AS MATERIALIZED (
    SELECT id, CASE WHEN deleted_at IS NULL AND NOT EXISTS (
               SELECT FROM budget_stops b
               WHERE (b.scope, b.name) IN (('project', project), ('user', owner),
                                           ('key', substring(created_by FROM '^key:(.*)'))))
           THEN replicas ELSE 0 END AS wanted,
           target_revision, serving ? 'resource_groups' AS has_groups, deleted_at IS NULL AS stays
    FROM endpoints
    WHERE id > $1::uuid ORDER BY id LIMIT $2
)
SELECT (SELECT id
        FROM chunk
        WHERE (SELECT count(*) FROM chunk) = $2
        ORDER BY id DESC
        LIMIT 1) AS last,
       ARRAY(
           SELECT c.id FROM chunk c, LATERAL (
               SELECT count(*) AS live, count(*) FILTER (
                   WHERE (a.id IS NULL OR (a.status = 'ALIVE' AND a.cordon <> 'drain'))
                     AND s.draining_since IS NULL AND k.unhealthy_since IS NULL
                     AND coalesce(s.endpoint_revision, 1) = c.target_revision) AS healthy,
                   count(*) FILTER (WHERE s.status = 'PENDING') AS waiting
               FROM sessions s
               LEFT JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
                 AND k.hostname = 'main1'
               LEFT JOIN agents a ON a.id = k.agent_id
               WHERE s.endpoint_id = c.id AND s.status NOT IN (:TERMINAL)
                 AND s.status <> 'TERMINATING') r
           WHERE ($3 AND c.stays) OR r.live <> c.wanted OR r.healthy <> c.wanted
             OR (c.has_groups AND r.waiting > 0)) AS endpoints
