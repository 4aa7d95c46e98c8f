-- Write the kernel states that agents observed. Compare-and-swap on each kernel's old status ($3):
-- `locked` compares it and locks the rows in the order of their ids, so that they cannot change
-- before the update. The kernel must belong to the reporting agent, and the report must have come
-- through that agent's newest stream ($12); FOR SHARE keeps a newer stream from registering until
-- this commits. `in_routes`: the kernel listens, or its site expects its start, so routes may be
-- affected. `was_stopping`: it has ended, and a new attempt of its session may wait for that.
-- `endpoint_id`: the endpoint of a replica whose health changed.
WITH input AS (
    SELECT *
    FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[],
                $8::int[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[],
                $14::float8[], $15::float8[], $16::float8[])
    AS i(agent_id, id, old, new, observed, host, port, exit_code, reason, detail, log_tail, stream,
         unhealthy, expected_start, ends_at, kept_until)
), reporting AS (
    SELECT a.id FROM agents a
    JOIN (SELECT DISTINCT agent_id, stream FROM input) i ON a.id = i.agent_id
    WHERE a.stream = i.stream ORDER BY a.id FOR SHARE OF a
), locked AS (
    SELECT i.* FROM kernels k JOIN input i ON k.id = i.id JOIN reporting p ON p.id = i.agent_id
    WHERE k.status = i.old AND k.agent_id = i.agent_id ORDER BY k.id FOR NO KEY UPDATE OF k
)
UPDATE kernels k SET
    status = i.new, observed = i.observed,
    status_since = CASE WHEN k.status = i.new THEN k.status_since ELSE now() END,
    host = CASE WHEN i.port > 0 THEN i.host ELSE k.host END,
    port = CASE WHEN i.port > 0 THEN i.port ELSE k.port END,
    exit_code = coalesce(i.exit_code, k.exit_code),
    reason = CASE WHEN i.reason = '' THEN k.reason ELSE i.reason END,
    -- A start step's detail is obsolete once the status changes.
    detail = CASE WHEN i.detail = '' AND i.new = k.status THEN k.detail ELSE i.detail END,
    log_tail = CASE WHEN i.log_tail = '' THEN k.log_tail ELSE i.log_tail END,
    -- The health that the kernel had at its end stays.
    unhealthy_since = CASE WHEN i.new <> 'RUNNING' THEN k.unhealthy_since
                           WHEN i.unhealthy <> '' THEN coalesce(k.unhealthy_since, now()) END,
    unhealthy_detail = CASE WHEN i.new <> 'RUNNING' THEN k.unhealthy_detail ELSE i.unhealthy END,
    kept_until = CASE WHEN i.new <> 'RUNNING' THEN k.kept_until
                      ELSE to_timestamp(nullif(i.kept_until, 0)) END,
    -- If no agent reports the value of a job for a moment, it stays as it was.
    expected_start = CASE WHEN i.observed = 'UNKNOWN' THEN k.expected_start
                          ELSE to_timestamp(nullif(i.expected_start, 0)) END,
    ends_at = coalesce(to_timestamp(nullif(i.ends_at, 0)), k.ends_at),
    -- For a job, the walltime may have begun long before its agent reports it after an absence.
    started_at = CASE WHEN k.started_at IS NULL AND i.ends_at > 0
        THEN least(now(),
                   to_timestamp(i.ends_at)
                   - make_interval(secs => (SELECT as_number(s.spec -> 'walltime_s')
                                            FROM sessions s WHERE s.id = k.session_id)))
        ELSE k.started_at END
FROM locked i
WHERE k.id = i.id
RETURNING k.id, k.session_id, k.port > 0 OR i.expected_start > 0 AS in_routes,
          i.old = 'TERMINATING' AND i.new <> i.old AS was_stopping,
          CASE WHEN i.old = 'RUNNING' AND i.new = 'RUNNING'
               THEN (SELECT s.endpoint_id
                     FROM sessions s WHERE s.id = k.session_id) END AS endpoint_id
