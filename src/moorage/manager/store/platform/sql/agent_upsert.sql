-- Register agents that are new, have returned or have changed ($1: one object each) with manager
-- $2. Returns for each whether it was accepted, and its previous state, so that a return can be
-- announced and a refusal explained.
--
-- Two kinds of reports are refused. One is a report through a stream older than the newest one (0
-- means that streams are not counted): it was delayed in another manager, or its process was
-- replaced. The other is a report under another identity, until the known agent is LOST and its
-- kernels are known to have ended. Otherwise the new agent would be ordered to run those kernels,
-- or, by not reporting them, would make them count as ended, and they would run twice.
WITH input AS (
    SELECT * FROM jsonb_to_recordset($1::jsonb) AS i(
        id text, resource_group text, identity text, incarnation text, stream bigint, address text,
        version text, arch text, runtimes text[], engines text[], labels jsonb, draining boolean,
        max_kernels integer, share_quantum integer, share_minimum integer, report_interval_s float8,
        silence_grace_s jsonb, refuses_orders boolean, unknown_kernels jsonb, whole boolean,
        lease_runtimes text[], doubtful_jobs jsonb, site_nodes jsonb, reach_why text,
        undialed jsonb, not_ready text, suspend_runtimes text[])
), before AS (
    SELECT a.id, a.status, a.identity, a.incarnation, a.address,
           a.status <> 'ALIVE' OR a.detached_stream IS NOT NULL AS away, a.ready, a.doubtful_jobs
           FROM agents a JOIN input i ON i.id = a.id
), registered AS (
    INSERT INTO agents AS a (id, resource_group, status, identity, incarnation, stream, address,
                             version, arch, runtimes, engines, labels, leaving, max_kernels,
                             share_quantum, share_minimum, report_interval_s, silence_grace_s,
                             manager, refuses_orders, unknown_kernels, lease_runtimes,
                             doubtful_jobs, site_nodes, configured_group, reach_why, undialed,
                             not_ready, suspend_runtimes)
    SELECT id, resource_group, 'ALIVE', identity, incarnation, stream, address, version, arch,
           runtimes, engines, labels, draining, max_kernels, share_quantum, share_minimum,
           report_interval_s, silence_grace_s, $2,
           -- As in the column `ready`: an agent that reports why it accepts no new work gets no
           -- orders for new kernels.
           refuses_orders OR not_ready <> '', unknown_kernels, lease_runtimes, doubtful_jobs,
           site_nodes, resource_group, reach_why, undialed, not_ready, suspend_runtimes
    FROM input ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        resource_group = coalesce(a.assigned_group, excluded.resource_group),
        configured_group = excluded.configured_group, status = 'ALIVE',
        identity = excluded.identity, incarnation = excluded.incarnation, stream = excluded.stream,
        address = excluded.address, version = excluded.version, arch = excluded.arch,
        runtimes = excluded.runtimes, engines = excluded.engines, labels = excluded.labels,
        leaving = excluded.leaving, max_kernels = excluded.max_kernels,
        share_quantum = excluded.share_quantum, share_minimum = excluded.share_minimum,
        lease_runtimes = excluded.lease_runtimes, suspend_runtimes = excluded.suspend_runtimes,
        doubtful_jobs = excluded.doubtful_jobs,
        site_nodes = excluded.site_nodes,
        -- From a manager of the previous release.
        direct_address = '',
        reach_why = excluded.reach_why, undialed = excluded.undialed,
        not_ready = excluded.not_ready, report_interval_s = excluded.report_interval_s,
        silence_grace_s = excluded.silence_grace_s, last_seen = now(), manager = excluded.manager,
        detached_stream = NULL,
        refuses_orders = excluded.refuses_orders, unknown_kernels = excluded.unknown_kernels,
        -- Which kernels the agent has is known only from a full report.
        restored_at = CASE WHEN (SELECT i.whole FROM input i WHERE i.id = a.id) THEN NULL
                           ELSE a.restored_at END,
        connected_at = CASE WHEN a.incarnation = excluded.incarnation THEN a.connected_at
                            ELSE now() END
    WHERE CASE WHEN a.identity = excluded.identity OR '' IN (a.identity, excluded.identity)
          THEN excluded.stream = 0 OR a.stream < excluded.stream
               OR (a.stream, a.incarnation) = (excluded.stream, excluded.incarnation)
          ELSE a.status = 'LOST' AND NOT EXISTS (
               SELECT FROM kernels k WHERE k.agent_id = a.id
                 AND k.status NOT IN ('PENDING', :TERMINAL))
          END
    RETURNING a.id, a.ready, a.doubtful_jobs
), doubted AS (
    -- Jobs that have become doubtful, and those that no longer are.
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT r.id, e.event, 'agent ' || r.id, left(e.detail, 4000)
    FROM registered r LEFT JOIN before b USING (id), LATERAL (
        SELECT 'doubtful-job' AS event,
               string_agg(format('%s (job %s): %s', j ->> 'name', j ->> 'job_id', j ->> 'why'),
                          '; ') AS detail
        FROM jsonb_array_elements(as_array(r.doubtful_jobs)) j
        WHERE NOT coalesce(b.doubtful_jobs, '[]') @> jsonb_build_array(
            jsonb_build_object('name', j -> 'name', 'job_id', j -> 'job_id'))
        UNION ALL
        SELECT 'settled-job', string_agg(format('%s (job %s)', j ->> 'name', j ->> 'job_id'), '; ')
        FROM jsonb_array_elements(as_array(b.doubtful_jobs)) j
        WHERE NOT r.doubtful_jobs @> jsonb_build_array(
            jsonb_build_object('name', j -> 'name', 'job_id', j -> 'job_id'))
    ) e WHERE e.detail IS NOT NULL
)
SELECT i.id, r.id IS NOT NULL AS accepted, coalesce(b.away, true) AS was_away,
       b.identity AS old_identity, b.incarnation AS old_incarnation, b.address AS old_address,
       r.ready IS DISTINCT FROM b.ready AS readiness_changed
FROM input i LEFT JOIN registered r USING (id) LEFT JOIN before b USING (id)
