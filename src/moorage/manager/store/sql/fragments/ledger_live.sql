-- CTEs: what live kernels have used so far, as records of the ledger.
live AS (
    SELECT k.id AS kernel_id, k.session_id, k.started_at IS NOT NULL AS job,
           date_trunc('second', coalesce(k.started_at, k.running_at), 'UTC') AS began_at,
           date_trunc('second', CASE WHEN k.started_at IS NOT NULL THEN least(now(), k.ends_at)
                                     WHEN a.status = 'ALIVE' THEN now() ELSE a.last_seen END, 'UTC') AS ended_at
    FROM kernels k JOIN agents a ON a.id = k.agent_id
    WHERE k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR') AND (k.running_at IS NOT NULL OR k.started_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM ledger l WHERE l.kernel_id = k.id)
), charged AS (
    SELECT l.began_at, l.ended_at, l.rate, l.amount, l.unit, l.device,
           l.project, l.username, l.key_id, l.model, l.endpoint, l.session_id, l.resource_group
    FROM ledger l
    UNION ALL
    SELECT v.began_at, v.ended_at, r.rate, r.rate * extract(epoch FROM v.ended_at - v.began_at)::bigint, r.unit, r.device,
           p.project, p.username, p.key_id, p.model, p.endpoint, p.session_id, p.resource_group
    FROM live v, ledger_rates(v.kernel_id, v.job) r, ledger_payer(v.session_id) p WHERE v.ended_at > v.began_at
)
