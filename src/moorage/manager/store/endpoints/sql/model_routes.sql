-- The models with these names ($2), and those of these sessions and endpoints ($1): endpoints,
-- ready or not, and running inference sessions without an endpoint. A name without a route has a
-- row without `rank`. `holds`: a replica is starting, or a request wakes the endpoint.
-- `expected_s`: nine of ten recent replicas were ready within this time. `ready_at`: when the next
-- starting replica will be ready, judging by the start that its site expects, or otherwise by its
-- creation. `suspended_until`: an exhausted budget of the endpoint's payer stops it until then.
WITH
-- include: budget_stops
, names AS MATERIALIZED (
    SELECT unnest($2::text[]) AS name
    UNION SELECT e.name FROM endpoints e WHERE e.id = ANY ($1::uuid[])
    UNION SELECT coalesce(e.name, s.name)
    FROM sessions s LEFT JOIN endpoints e ON e.id = s.endpoint_id
    WHERE s.id = ANY ($1::uuid[]) AND s.type = 'inference'
)
SELECT n.name AS model, r.created_at, r.rank, r.session_id, r.kernel_id, r.host, r.port, r.secret,
       r.engine, r.project, r.shared_with, r.draining, r.args, r.wanted, r.holds, r.is_starting,
       r.expected_s, r.ready_at, r.max_model_len, r.routing, r.secrets, r.adapters, r.limits,
       r.canary, r.is_canary, r.peer_id, r.suspended_until
FROM names n LEFT JOIN LATERAL (
    SELECT e.created_at, 0 AS rank, t.*, e.project, e.shared_with, e.replicas AS wanted,
           e.replicas > 0
             OR coalesce(as_integer(e.serving -> 'autoscale' -> 'min') = 0, false) AS holds,
           x.is_starting, y.expected_s, z.ready_at,
           CASE WHEN e.canary_of IS NULL THEN 0
                ELSE as_integer(e.serving -> 'rollout' -> 'canary') END AS canary,
           e.serving -> 'routing' AS routing, e.serving -> 'adapters' AS adapters,
           CASE WHEN e.serving ? 'routing' THEN (
               SELECT jsonb_object_agg(z.name, jsonb_build_array(z.key_id, encode(z.sealed, 'hex')))
               FROM jsonb_array_elements(as_array(e.serving -> 'routing' -> 'fallbacks')) f
               JOIN secrets z ON z.project = e.project AND z.name = f ->> 'secret') END AS secrets,
           e.serving -> 'limits' AS limits, (
               SELECT max(b.resets_at) FROM budget_stops b
               WHERE (b.scope, b.name) IN (('project', e.project), ('user', e.owner),
                                           ('key', substring(e.created_by FROM '^key:(.*)')))
                 AND (b.unit <> 'gpu' OR EXISTS (
                     SELECT FROM jsonb_each_text(as_object(e.spec -> 'resources')) r
                     WHERE r.key LIKE '%.%' AND r.value !~ '^[0.]*$'))
           ) AS suspended_until
    FROM endpoints e
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(s.status NOT IN (:WAITING)), false) AS is_starting FROM sessions s
        WHERE s.endpoint_id = e.id AND s.status NOT IN (:TERMINAL) AND s.status <> 'TERMINATING') x
    CROSS JOIN LATERAL (
        SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY s.ready_at - s.created_at) AS expected_s,
               percentile_disc(0.9) WITHIN GROUP (ORDER BY s.ready_at - k.started_at) AS load_s
        FROM (SELECT n.id, n.attempt, n.ready_at, n.created_at
              FROM sessions n
              WHERE n.endpoint_id = e.id ORDER BY n.created_at DESC LIMIT 10) s
        LEFT JOIN LATERAL (SELECT started_at FROM kernels
                           WHERE session_id = s.id AND attempt = s.attempt
                             AND hostname = 'main1' OFFSET 0) k ON true
        WHERE s.ready_at IS NOT NULL) y
    -- OFFSET 0: any plan starts from the replicas of the endpoint.
    CROSS JOIN LATERAL (
        SELECT min(coalesce(k.expected_start + y.load_s, s.created_at + y.expected_s)) AS ready_at
        FROM (SELECT id, attempt, created_at FROM sessions WHERE endpoint_id = e.id
              AND status IN (:BEFORE_RUNNING) OFFSET 0) s
        LEFT JOIN LATERAL (SELECT expected_start FROM kernels
                           WHERE session_id = s.id AND attempt = s.attempt
                             AND hostname = 'main1' OFFSET 0) k ON true) z
    LEFT JOIN LATERAL (
        SELECT s.id AS session_id, k.id AS kernel_id, k.host, k.port, k.secret,
               s.spec ->> 'engine' AS engine, s.draining_since IS NOT NULL AS draining,
               s.spec -> 'args' AS args, l.max_model_len,
               coalesce(e.canary_of IS NOT NULL AND s.endpoint_revision = e.target_revision,
                        false) AS is_canary,
               coalesce(a.id::text, '') AS peer_id
        FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
        LEFT JOIN engine_loads l ON l.kernel_id = k.id
        LEFT JOIN link_peers a ON a.kind = 'agent' AND a.name = k.agent_id AND a.revoked_at IS NULL
        WHERE s.endpoint_id = e.id AND s.status = 'RUNNING' AND k.status = 'RUNNING' AND k.port > 0
          AND k.hostname = 'main1'
          -- Whoever holds a revoked agent's keys could read clients' requests.
          AND (a.id IS NOT NULL
               OR NOT EXISTS (SELECT FROM link_peers r
                              WHERE r.kind = 'agent' AND r.name = k.agent_id))
          -- The proxies count requests only at replicas that they know: a draining replica stops
          -- when it has no requests left.
          AND (k.unhealthy_since IS NULL OR s.draining_since IS NOT NULL
               -- The last replicas stay, because they may answer clients although the probe fails.
               -- Unreachable replicas cannot answer.
               OR k.kept_until IS NULL AND NOT EXISTS (
                   SELECT FROM sessions o
                   JOIN kernels p ON p.session_id = o.id AND p.attempt = o.attempt
                   WHERE o.endpoint_id = e.id AND o.status = 'RUNNING' AND o.draining_since IS NULL
                     AND p.status = 'RUNNING' AND p.port > 0 AND p.hostname = 'main1'
                     AND p.unhealthy_since IS NULL))) t ON true
    WHERE e.name = n.name AND e.deleted_at IS NULL
    UNION ALL
    SELECT s.created_at, 1, s.id, k.id, k.host, k.port, k.secret, s.spec ->> 'engine', false,
           s.spec -> 'args', l.max_model_len, false, coalesce(a.id::text, ''), s.project, '{}', 1,
           false, true, NULL::interval, NULL::timestamptz, 0, NULL, NULL, NULL, NULL, NULL
    FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
    LEFT JOIN engine_loads l ON l.kernel_id = k.id
    LEFT JOIN link_peers a ON a.kind = 'agent' AND a.revoked_at IS NULL AND a.name = k.agent_id
    WHERE s.name = n.name AND s.endpoint_id IS NULL AND s.type = 'inference'
      AND s.status = 'RUNNING'
      AND k.status = 'RUNNING' AND k.port > 0 AND k.hostname = 'main1'
      AND (a.id IS NOT NULL
           OR NOT EXISTS (SELECT FROM link_peers r
                          WHERE r.name = k.agent_id AND r.kind = 'agent'))) r ON true
ORDER BY 3, 1, 5
