-- Prepare a database that was restored to an older state, before a manager starts. Agents and
-- proxies have seen higher numbers, and the events since the backup are unknown until they report.
--
-- Generations start at the time, in milliseconds, at which the database was created, and grow more
-- slowly than time, so the current time is above all generations that were drawn; the same applies
-- to terms, in seconds. Agents get no new work until they have reported (`restored_at`), and are
-- not regarded as silent before they could report. A session that is PENDING may have been started
-- since: its kernels get new ids, so that a report about an old id is recognized
-- (lost_placements_settle.sql). A kernel that is SCHEDULED may have run and ended since: if its
-- agent does not have it, it is gone, and is not started again under the same id. Starts and stops
-- get two minutes from now.
WITH generation AS MATERIALIZED (
    SELECT setval('generations', greatest((SELECT last_value FROM generations),
                                          (extract(epoch FROM now()) * 1000)::bigint)) AS at
), lease AS (
    UPDATE leases
    SET term = greatest(term, extract(epoch FROM now())::bigint) + 1, expires_at = now()
), returning_agents AS (
    UPDATE agents
    SET restored_at = now(), last_seen = now(), refuses_orders = false, not_ready = '',
        unknown_kernels = '[]'
    WHERE incarnation <> '' AND status <> 'LOST' RETURNING id
), replaced AS (
    SELECT k.id AS old, md5(k.id::text || g.at)::uuid AS new
    FROM kernels k, generation g
    WHERE k.status = 'PENDING'
), pending_kernels AS (
    UPDATE kernels k SET id = r.new FROM replaced r WHERE k.id = r.old
), former_ids AS (
    INSERT INTO replaced_kernels (id, kernel_id) SELECT old, new FROM replaced
), scheduled_kernels AS (
    UPDATE kernels SET status = 'PREPARING' WHERE status = 'SCHEDULED'
), moving AS (
    UPDATE sessions SET deadline_at = greatest(deadline_at, now() + interval '2 minutes')
    WHERE status IN (:AWAITING_AGENT) AND deadline_at IS NOT NULL
)
SELECT g.at AS generation, (SELECT count(*) FROM returning_agents) AS agents,
       (SELECT count(*) FROM sessions WHERE status NOT IN (:TERMINAL)) AS sessions
FROM generation g
