-- Sessions (those of $2; NULL: all) that could stay in their status indefinitely: without the
-- deadline that the status needs, past their deadline for more than $1 seconds, or without a kernel
-- to wait for. A late stop has no deadline: it waits for its kernels.
SELECT s.id::text AS subject, 'it is ' || s.status || ' without a deadline' AS detail
FROM sessions s
WHERE ($2::uuid[] IS NULL OR s.id = ANY ($2)) AND s.deadline_at IS NULL AND (
    s.status IN ('SCHEDULED', 'PREPARING', 'CREATING')
    OR (s.status = 'QUEUED' AND s.spec ->> 'queue_timeout_s' IS NOT NULL)
    OR (s.status = 'TERMINATING' AND NOT EXISTS (
        SELECT FROM session_history h
        WHERE h.session_id = s.id AND h.revision = s.revision AND h.event = 'stop-overdue'))
    OR (s.status = 'PENDING' AND s.spec ->> 'pending_timeout_s' IS NOT NULL
        AND s.adopted_from IS NULL)
    OR (s.status = 'RUNNING'
        AND coalesce(s.spec ->> 'timeout_s', s.spec ->> 'max_lifetime_s') IS NOT NULL))
UNION ALL
SELECT s.id::text, 'it is ' || s.status || ' and its deadline passed at ' || s.deadline_at
FROM sessions s
WHERE ($2::uuid[] IS NULL OR s.id = ANY ($2)) AND s.deadline_at < now() - make_interval(secs => $1)
  AND s.status NOT IN (:TERMINAL)
  -- A job's deadline does not apply while no agent reports on the job.
  AND NOT ((s.status = 'QUEUED' OR (s.status IN ('PREPARING', 'CREATING') AND s.spec ? 'job'))
           AND EXISTS (
               SELECT FROM kernels k JOIN agents n ON n.id = k.agent_id
               WHERE k.session_id = s.id AND k.attempt = s.attempt
                 AND (n.status <> 'ALIVE' OR k.observed = 'UNKNOWN')))
UNION ALL
SELECT s.id::text,
       'it shares the run of session ' || o.id || ', which is ' || o.status || ' since '
           || o.status_since
FROM sessions s JOIN sessions o ON o.id = s.adopted_from
WHERE ($2::uuid[] IS NULL OR s.id = ANY ($2)) AND s.status NOT IN (:TERMINAL)
  AND o.status IN (:TERMINAL)
  AND greatest(o.status_since, s.created_at) < now() - make_interval(secs => $1)
UNION ALL
SELECT s.id::text, 'it is ' || s.status || ' without a kernel' FROM sessions s
WHERE ($2::uuid[] IS NULL OR s.id = ANY ($2)) AND s.status NOT IN (:TERMINAL)
  AND NOT EXISTS (SELECT FROM kernels k WHERE k.session_id = s.id AND k.attempt = s.attempt)
UNION ALL
SELECT s.id::text,
       'it is ' || s.status || ', but its kernel ' || k.id || ' is ' || k.status || ' since '
           || k.status_since
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
WHERE ($2::uuid[] IS NULL OR s.id = ANY ($2))
  AND s.status IN (:PLACED)
  AND k.status IN (:TERMINAL) AND k.status_since < now() - make_interval(secs => $1)
  AND NOT (s.status = 'TERMINATING' AND EXISTS (
      SELECT FROM kernels o
      WHERE o.session_id = s.id AND o.attempt = s.attempt AND o.status = 'TERMINATING'))
  -- A cluster continues without sub kernels that have finished, or that its spec allows it to lose.
  AND NOT (s.spec ? 'cluster' AND k.hostname <> 'main1' AND (
      (s.type = 'batch' AND k.reason = 'exit-zero')
      OR (s.status = 'RUNNING' AND s.spec #>> '{cluster,on_kernel_loss}' = 'degrade')))
ORDER BY 1 LIMIT 1000
