-- CTEs: all usage (`entries`), which for live kernels lasts until now, and the intervals in which
-- the prices of each unit stay the same. An entry with a rate is spread over its interval; an entry
-- without a rate is counted at its time.
live AS (
    SELECT k.id AS kernel_id, k.session_id, k.started_at IS NOT NULL AS job,
           date_trunc('second', coalesce(k.started_at, k.running_at), 'UTC') AS began_at,
           date_trunc('second', CASE WHEN k.started_at IS NOT NULL THEN least(now(), k.ends_at)
                                     WHEN a.status = 'ALIVE' THEN now() ELSE a.last_seen END,
                                 'UTC') AS ended_at
    FROM kernels k JOIN agents a ON a.id = k.agent_id
    WHERE k.status NOT IN ('PENDING', :TERMINAL)
      AND (k.running_at IS NOT NULL OR k.started_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM ledger l WHERE l.kernel_id = k.id)
), entries AS (
    SELECT l.began_at, l.ended_at, l.rate, l.amount::numeric, l.unit, l.device,
           l.project, l.username, l.key_id, l.model, l.endpoint, l.session_id, l.resource_group,
           l.price_factor
    FROM ledger l
    UNION ALL
    SELECT v.began_at, v.ended_at, r.rate, r.rate * extract(epoch FROM v.ended_at - v.began_at),
           r.unit, r.device, p.project, p.username, p.key_id, p.model, p.endpoint, p.session_id,
           p.resource_group,
           coalesce((SELECT q.price_factor FROM session_qos q
                     WHERE q.session_id = v.session_id), 1)
    FROM live v, ledger_rates(v.kernel_id, v.job) r, ledger_payer(v.session_id) p
    WHERE v.ended_at > v.began_at
    UNION ALL
    SELECT r.ended_at, r.ended_at, 0, u.amount, u.unit, '',
           r.project, r.username, r.key_id, r.model, r.endpoint, r.session_id, r.resource_group, 1
    FROM usage_records r CROSS JOIN LATERAL (VALUES
        ('requests', r.requests), ('tokens_in', r.tokens_in), ('tokens_out', r.tokens_out),
        ('tokens_cached', r.tokens_cached)) u(unit, amount)
    UNION ALL
    SELECT h.at, h.at, 0, u.amount, u.unit, '',
           h.project, h.username, h.key_id, h.model, h.endpoint, h.session_id, h.resource_group, 1
    FROM usage_hours h CROSS JOIN LATERAL (VALUES
        ('requests', h.requests), ('tokens_in', h.tokens_in), ('tokens_out', h.tokens_out),
        ('tokens_cached', h.tokens_cached)) u(unit, amount)
    UNION ALL
    SELECT m.at, m.at, 0, m.amount, m.unit, m.device,
           m.project, m.username, m.key_id, m.model, m.endpoint, '', m.resource_group, 1
    FROM ledger_months m
), price_spans AS (
    SELECT unit, since, lead(since) OVER (PARTITION BY unit ORDER BY since) AS until
    FROM (SELECT unit, '-infinity'::timestamptz AS since
          FROM unnest(ARRAY['gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out',
                            'tokens_cached']) AS unit
          UNION SELECT unit, since FROM prices) p
)
