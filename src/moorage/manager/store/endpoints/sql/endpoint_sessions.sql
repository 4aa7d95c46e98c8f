-- The replicas of endpoints ($1): all live ones, and the ten newest that have ended (index
-- sessions_by_endpoint). `in_flight`: counted by the proxies that reported in the last $2 seconds;
-- NULL if there is none. `confirmed`: all of these proxies know that the replica is draining,
-- judging by the generation of their routes or by time, because a table that was read just before
-- that generation was drawn may already contain it. `failing_since`: a proxy reports that it fails
-- all requests, and none reports that it has answered recently.
WITH proxies AS MATERIALIZED (
    SELECT proxy_id, routes_generation
    FROM proxy_reports
    WHERE at > now() - make_interval(secs => $2)
), flights AS MATERIALIZED (
    SELECT f.key AS session_id, sum(as_integer(f.value)) AS in_flight
    FROM endpoints e JOIN model_loads m ON m.model = e.name
    JOIN proxies p USING (proxy_id), jsonb_each(as_object(m.replicas)) f
    WHERE e.id = ANY ($1::uuid[]) GROUP BY 1
), failures AS MATERIALIZED (
    SELECT f.key AS session_id,
           min(m.changed_at - make_interval(secs => as_number(f.value))) AS failing_since
    FROM endpoints e JOIN model_loads m ON m.model = e.name
    JOIN proxies p USING (proxy_id), jsonb_each(as_object(m.failing)) f
    WHERE e.id = ANY ($1::uuid[]) AND m.failing <> '{}' AND NOT EXISTS (
        SELECT FROM model_loads o JOIN proxies USING (proxy_id)
        WHERE o.model = e.name AND o.answering ? f.key AND o.changed_at > now() - interval '15 s')
    GROUP BY 1
)
SELECT s.endpoint_id, s.id, s.name, s.resource_group, s.status, s.reason, s.detail, s.created_at,
       s.status_since, s.ready_at, coalesce(s.endpoint_revision, 1) AS revision, s.draining_since,
       s.drain_reason,
       CASE WHEN s.status = 'RUNNING' THEN least(s.deadline_at, CASE WHEN s.spec ? 'job' THEN
           coalesce(k.ends_at,
                    s.ready_at + make_interval(secs => as_number(s.spec -> 'walltime_s')))
           END) END AS ends_at,
       CASE WHEN s.spec ? 'job' THEN as_number(s.spec -> 'walltime_s') END AS walltime_s,
       k.expected_start, as_number(rg.options #> '{hpc,successor_at}') AS successor_at,
       CASE WHEN EXISTS (SELECT FROM proxies) THEN coalesce(f.in_flight, 0) END AS in_flight,
       s.drain_generation < (SELECT min(routes_generation) FROM proxies)
         OR s.draining_since < now() - interval '10 s' AS confirmed,
       g.running, g.waiting, g.kv_cache, k.unhealthy_since, k.unhealthy_detail, k.kept_until,
       x.failing_since, k.host, k.port, k.agent_id, k.log_tail, k.detail AS kernel_detail,
       coalesce(a.status <> 'ALIVE', false) AS agent_silent,
       coalesce(a.cordon = 'drain', false) AS agent_drained,
       coalesce(CASE WHEN s.status = 'PENDING' THEN s.hold ->> 'reason' END, '') AS held
FROM unnest($1::uuid[]) AS e(id)
CROSS JOIN LATERAL (
    SELECT * FROM (SELECT * FROM sessions l WHERE l.endpoint_id = e.id
                     AND l.status NOT IN (:TERMINAL)) live
    UNION ALL
    SELECT * FROM (SELECT * FROM sessions d WHERE d.endpoint_id = e.id
                     AND d.status IN (:TERMINAL)
                   ORDER BY d.created_at DESC LIMIT 10) ended) s
LEFT JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1'
LEFT JOIN agents a ON a.id = k.agent_id
LEFT JOIN resource_groups rg ON rg.name = s.resource_group AND s.spec ? 'job'
LEFT JOIN engine_loads g ON g.kernel_id = k.id
LEFT JOIN flights f ON f.session_id = s.id::text
LEFT JOIN failures x ON x.session_id = s.id::text AND s.status = 'RUNNING'
ORDER BY s.created_at DESC, s.id DESC
