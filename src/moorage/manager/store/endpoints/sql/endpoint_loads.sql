-- The load of endpoints ($1), by the proxies that reported in the last $2 seconds, and by the
-- engines of replicas that serve. `requests`: the counters of the proxies, by proxy and
-- incarnation. `idle_s`: NULL if no proxy reports. `full_at`: running requests per replica when an
-- endpoint got more replicas because requests waited, in the latest decisions since its target
-- revision.
WITH proxies AS MATERIALIZED (
    SELECT proxy_id, incarnation FROM proxy_reports WHERE at > now() - make_interval(secs => $2)
)
SELECT e.id, e.replicas AS wanted, e.spec, e.serving, e.revision AS version, now() AS at,
       coalesce(e.scaled_at, e.created_at) AS scaled_at,
       greatest(e.changed_at, r.ready_at) AS active_since, coalesce(r.ready, 0) AS ready, r.running,
       r.waiting, r.kv_cache,
       coalesce(l.in_flight, 0) AS in_flight, coalesce(l.held, 0) AS held, l.requests,
       l.first_token_ms,
       CASE WHEN EXISTS (SELECT FROM proxies) THEN
           CASE WHEN l.in_flight + l.held > 0 THEN 0
                ELSE extract(epoch FROM now() - coalesce(l.active_at, e.created_at)) END
       END AS idle_s, f.full_at
FROM endpoints e
LEFT JOIN LATERAL (
    SELECT count(*) AS ready, max(s.ready_at) AS ready_at, sum(g.running) AS running,
           sum(g.waiting) AS waiting, avg(g.kv_cache) AS kv_cache
    FROM sessions s
    JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1'
    LEFT JOIN engine_loads g ON g.kernel_id = k.id
    WHERE s.endpoint_id = e.id AND s.status = 'RUNNING' AND s.draining_since IS NULL
      AND k.unhealthy_since IS NULL) r ON true
LEFT JOIN LATERAL (
    SELECT sum(m.in_flight) FILTER (WHERE p.proxy_id IS NOT NULL) AS in_flight,
           sum(m.waiting) FILTER (WHERE p.proxy_id IS NOT NULL) AS held,
           max(m.first_token_ms) FILTER (WHERE p.proxy_id IS NOT NULL) AS first_token_ms,
           max(m.active_at) AS active_at,
           jsonb_object_agg(p.proxy_id || '/' || p.incarnation, m.requests)
               FILTER (WHERE p.proxy_id IS NOT NULL) AS requests
    FROM model_loads m LEFT JOIN proxies p USING (proxy_id) WHERE m.model = e.name) l ON true
LEFT JOIN LATERAL (
    SELECT max(as_number(d.inputs -> 'running')
               / nullif(as_number(d.inputs -> 'ready'), 0)) AS full_at
    FROM (
        SELECT at, rule, from_replicas, to_replicas, inputs FROM scaling_decisions
        WHERE endpoint_id = e.id ORDER BY number DESC LIMIT 10) d
    JOIN endpoint_revisions v ON v.endpoint_id = e.id AND v.revision = e.target_revision
      AND v.created_at <= d.at
    WHERE d.rule = 'waiting' AND d.to_replicas > d.from_replicas) f ON true
WHERE e.id = ANY ($1::uuid[]) AND e.deleted_at IS NULL AND e.serving ? 'autoscale'
