-- Prepare a database that has failed over to a standby, which may lack the last commits. Managers
-- are running, and agents and proxies may know more than the database. As after the restore of a
-- backup (restored.sql), numbers continue above all those that were ever drawn, the leader's term
-- ends, and agents get no new work until they have reported. A session that is PENDING may have
-- been placed: its kernels get new ids, so that a report about an old id is recognized
-- (lost_placements_settle.sql). A kernel that is SCHEDULED keeps its id: if it has run and ended,
-- its agent remembers how and reports it.
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
    WHERE incarnation <> '' AND status <> 'LOST'
), replaced AS (
    SELECT k.id AS old, md5(k.id::text || g.at)::uuid AS new
    FROM kernels k, generation g
    WHERE k.status = 'PENDING'
), pending_kernels AS (
    UPDATE kernels k SET id = r.new FROM replaced r WHERE k.id = r.old
), former_ids AS (
    INSERT INTO replaced_kernels (id, kernel_id) SELECT old, new FROM replaced
), moving AS (
    UPDATE sessions SET deadline_at = greatest(deadline_at, now() + interval '1 minute')
    WHERE status IN (:AWAITING_AGENT) AND deadline_at IS NOT NULL
)
SELECT count(*) FROM sessions, generation WHERE status NOT IN (:TERMINAL)
