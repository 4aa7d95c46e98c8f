-- Record at manager $7 that agents with unchanged information ($1, with their incarnations $2 and
-- streams $3) are alive, and read the kernels that may have to change in the same round trip. For
-- agents with a full report ($4): the live ones (index kernels_live_by_agent), and ended ones that
-- still hold allocations (index allocations_held). For the others: those that their reports name
-- ($5, with their agents $6). An agent without such kernels has one row. No row for an agent that
-- is new, silent, detached, restored from a backup, or known through another stream or manager:
-- agent_upsert.sql handles those.
WITH input AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i(id, incarnation, stream)
), locked AS (
    SELECT a.id FROM agents a JOIN input i ON a.id = i.id
    WHERE a.incarnation = i.incarnation AND a.stream = i.stream AND a.status = 'ALIVE'
      AND a.manager = $7
      AND a.detached_stream IS NULL AND a.restored_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF a
), touched AS (
    UPDATE agents a SET last_seen = now() FROM locked l WHERE a.id = l.id RETURNING a.id
), live AS MATERIALIZED (
    SELECT k.agent_id, k.id, k.session_id, k.status, k.detail,
           k.unhealthy_since IS NOT NULL AS unhealthy, k.expected_start, k.ends_at, k.kept_until,
           k.host, k.port, k.observed
    FROM kernels k WHERE k.agent_id = ANY ($4::text[]) AND k.status NOT IN ('PENDING', :TERMINAL)
), held AS MATERIALIZED (
    -- Subtract the live kernels first, so that only the few ended ones are looked up by key.
    SELECT kernel_id AS id
    FROM allocations
    WHERE agent_id = ANY ($4::text[]) AND released_at IS NULL
    EXCEPT SELECT id FROM live
), kernels_of AS (
    SELECT * FROM live
    UNION ALL
    SELECT k.agent_id, k.id, k.session_id, k.status, '', false, NULL, NULL, NULL, '', 0, ''
    FROM held JOIN kernels k USING (id)
    WHERE k.status IN (:TERMINAL)
    UNION ALL
    SELECT k.agent_id, k.id, k.session_id, k.status, k.detail, k.unhealthy_since IS NOT NULL,
           k.expected_start, k.ends_at, k.kept_until, k.host, k.port, k.observed
    FROM unnest($5::uuid[], $6::text[]) AS n(id, agent_id)
    JOIN kernels k ON k.id = n.id AND k.agent_id = n.agent_id
)
SELECT t.id AS agent_id, k.id, k.session_id, k.status,
       CASE WHEN k.status IN (:STARTING_STEPS) THEN k.detail END AS start_detail, k.unhealthy,
       extract(epoch FROM k.expected_start)::float8 AS expected_start,
       extract(epoch FROM k.ends_at)::float8 AS ends_at,
       extract(epoch FROM k.kept_until)::float8 AS kept_until, k.host, k.port,
       coalesce(k.observed = 'UNKNOWN', false) AS is_silent
FROM touched t LEFT JOIN kernels_of k ON k.agent_id = t.id
