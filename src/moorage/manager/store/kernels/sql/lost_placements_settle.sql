-- Settle PENDING sessions whose placement the database has lost (failed_over.sql, restored.sql),
-- according to the ends of their kernels that agents report: kernels $1 under their former ids, of
-- agents $2, with the new status of each ($3) and how it ended.
--
-- The kernel's end becomes the end of the session's attempt: the kernel gets its id back and ends,
-- without allocations, and the session becomes SCHEDULED on that agent, as it once was. The session
-- runs again, with an entry in its history, if it is a cluster, because one kernel's end says too
-- little about a cluster, or if the kernel was stopped because it was unknown (not $9:
-- manager.unknown_kernels = "end").
WITH input AS MATERIALIZED (
    -- As in session_place.sql, Postgres must not see the old status as a constant.
    SELECT i.*, 'PENDING' AS old
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[],
                $8::text[])
    AS i(id, agent_id, status, observed, exit_code, reason, detail, log_tail)
), lost AS MATERIALIZED (
    SELECT DISTINCT ON (k.session_id) i.*, k.id AS kernel_id, k.session_id,
           NOT s.spec ? 'cluster' AND ($9::boolean OR NOT a.unknown_kernels
               @> jsonb_build_array(jsonb_build_object('kernel_id', i.id))) AS adopted
    FROM input i JOIN replaced_kernels r ON r.id = i.id JOIN kernels k ON k.id = r.kernel_id
    JOIN sessions s ON s.id = k.session_id AND s.attempt = k.attempt
    JOIN agents a ON a.id = i.agent_id
    WHERE k.status = i.old AND s.status = i.old ORDER BY k.session_id, k.hostname
), moved AS (
    UPDATE sessions s SET revision = s.revision + 1, hold = NULL, detail = '', reason = '',
        status = CASE WHEN l.adopted THEN 'SCHEDULED' ELSE s.status END,
        status_since = CASE WHEN l.adopted THEN now() ELSE s.status_since END,
        deadline_at = CASE WHEN l.adopted THEN now() + interval '1 minute' ELSE s.deadline_at END,
        not_before = CASE WHEN NOT l.adopted THEN s.not_before END
    FROM lost l WHERE s.id = l.session_id AND s.status = l.old
    RETURNING s.id, s.revision, s.status, l.adopted
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT m.id, m.revision, CASE WHEN m.adopted THEN 'placed' ELSE 'redirected' END, l.old,
           m.status, 'agent ' || l.agent_id,
           CASE WHEN m.adopted THEN 'on ' || l.agent_id
                    || ', where it has run; the database had lost this placement'
                ELSE format('kernel %s has ended on %s (%s); the database had lost its placement, '
                            'and the session runs again',
                            l.id, l.agent_id, l.reason) END
    FROM moved m JOIN lost l ON l.session_id = m.id
), ended AS (
    UPDATE kernels k
    SET id = l.id, agent_id = l.agent_id, status = l.status, observed = l.observed,
        status_since = now(), exit_code = l.exit_code, reason = l.reason, detail = l.detail,
        log_tail = l.log_tail
    FROM moved m JOIN lost l ON l.session_id = m.id WHERE k.id = l.kernel_id AND m.adopted
), settled AS (
    DELETE FROM replaced_kernels r USING moved m JOIN kernels k ON k.session_id = m.id
    WHERE r.kernel_id = k.id
)
SELECT id, adopted FROM moved
