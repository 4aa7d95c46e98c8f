-- Add a sample of the load of each endpoint to the spans of a minute, an hour and a day that
-- contain it. $1: the leader's term. $2: a proxy that reported within this many seconds counts. $3:
-- after a longer pause than this many seconds since the last sample, requests are not counted,
-- because it is unknown when they came. The counters of the proxies are counted up to `counted`;
-- one that is lower than that has started again at zero.
WITH previous AS MATERIALIZED (
    SELECT at FROM load_samples
), sample AS (
    INSERT INTO load_samples (name, at)
    SELECT 'all', now()
    WHERE EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $1 AND expires_at > now())
    ON CONFLICT (name) DO UPDATE SET at = excluded.at
    RETURNING at
), spans AS (
    SELECT s.seconds, date_bin(make_interval(secs => s.seconds), now(), 'epoch') AS at,
           -- A sample of the future was made before the clock was set back.
           CASE WHEN p.at BETWEEN now() - make_interval(secs => $3) AND now()
                THEN extract(epoch FROM now() - p.at)::float8 ELSE 0 END AS covered_s
    FROM unnest(ARRAY[60, 3600, 86400]) AS s(seconds) CROSS JOIN sample
    LEFT JOIN previous p ON true
), uncounted AS MATERIALIZED (
    SELECT proxy_id, model, ARRAY[requests, errors, tokens_in, tokens_out] AS counts, counted
    FROM model_loads
    WHERE counted IS DISTINCT FROM ARRAY[requests, errors, tokens_in, tokens_out]
      AND EXISTS (SELECT FROM sample)
    ORDER BY proxy_id, model FOR UPDATE
), counted AS (
    UPDATE model_loads l SET counted = u.counts
    FROM uncounted u WHERE (l.proxy_id, l.model) = (u.proxy_id, u.model)
), traffic AS (
    SELECT u.model, sum(d.amount) FILTER (WHERE c.number = 1) AS requests,
           sum(d.amount) FILTER (WHERE c.number = 2) AS errors,
           sum(d.amount) FILTER (WHERE c.number = 3) AS tokens_in,
           sum(d.amount) FILTER (WHERE c.number = 4) AS tokens_out
    FROM uncounted u
    CROSS JOIN LATERAL unnest(u.counts, u.counted) WITH ORDINALITY AS c(now, before, number)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.now < c.before THEN c.now ELSE c.now - c.before END AS amount) d
    WHERE u.counted IS NOT NULL GROUP BY 1
), proxies AS (
    SELECT l.model, sum(l.in_flight) AS in_flight, sum(l.waiting) AS held,
           max(l.first_token_ms) AS first_token_ms
    FROM model_loads l JOIN proxy_reports p USING (proxy_id)
    WHERE p.at > now() - make_interval(secs => $2) GROUP BY 1
), engines AS (
    SELECT s.endpoint_id, count(*) AS ready, sum(g.running) AS running, sum(g.waiting) AS waiting
    FROM sessions s
    JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.hostname = 'main1'
    LEFT JOIN engine_loads g ON g.kernel_id = k.id
    WHERE s.endpoint_id IS NOT NULL AND s.status = 'RUNNING' AND s.draining_since IS NULL
      AND k.unhealthy_since IS NULL GROUP BY 1
)
INSERT INTO endpoint_load_spans AS o (endpoint_id, seconds, at, samples, covered_s, requests,
                                      errors, tokens_in, tokens_out, first_tokens, first_token_ms,
                                      first_token_peak_ms, running, waiting, held, wanted, ready)
SELECT e.id, s.seconds, s.at, 1, s.covered_s,
       CASE WHEN s.covered_s > 0 THEN coalesce(t.requests, 0) ELSE 0 END,
       CASE WHEN s.covered_s > 0 THEN coalesce(t.errors, 0) ELSE 0 END,
       CASE WHEN s.covered_s > 0 THEN coalesce(t.tokens_in, 0) ELSE 0 END,
       CASE WHEN s.covered_s > 0 THEN coalesce(t.tokens_out, 0) ELSE 0 END,
       (p.first_token_ms IS NOT NULL)::integer, p.first_token_ms, p.first_token_ms,
       greatest(g.running, p.in_flight - coalesce(g.waiting, 0), 0), coalesce(g.waiting, 0),
       coalesce(p.held, 0), e.replicas, coalesce(g.ready, 0)
FROM endpoints e CROSS JOIN spans s
LEFT JOIN traffic t ON t.model = e.name
LEFT JOIN proxies p ON p.model = e.name
LEFT JOIN engines g ON g.endpoint_id = e.id
WHERE e.deleted_at IS NULL
ON CONFLICT (endpoint_id, seconds, at) DO UPDATE SET samples = o.samples + 1,
    covered_s = o.covered_s + excluded.covered_s, requests = o.requests + excluded.requests,
    errors = o.errors + excluded.errors, tokens_in = o.tokens_in + excluded.tokens_in,
    tokens_out = o.tokens_out + excluded.tokens_out,
    first_tokens = o.first_tokens + excluded.first_tokens,
    first_token_ms = coalesce(
        o.first_token_ms
            + (excluded.first_token_ms - o.first_token_ms) / (o.first_tokens + 1),
        o.first_token_ms, excluded.first_token_ms),
    first_token_peak_ms = greatest(o.first_token_peak_ms, excluded.first_token_peak_ms),
    running = o.running + (excluded.running - o.running) / (o.samples + 1),
    waiting = o.waiting + (excluded.waiting - o.waiting) / (o.samples + 1),
    held = o.held + (excluded.held - o.held) / (o.samples + 1),
    wanted = o.wanted + (excluded.wanted - o.wanted) / (o.samples + 1),
    ready = o.ready + (excluded.ready - o.ready) / (o.samples + 1)
