-- For sessions ($1) that have ended without a result of their own, because they were stopped or
-- never placed: of the pending sessions that share their runs, the oldest one for each request
-- takes over the place in the queue, and the others share its run. If an equal request has begun to
-- run in the meantime, all of them share its run.
WITH waiting AS MATERIALIZED (
    SELECT a.id, a.adopted_from, a.created_at, a.project, a.request_hash
    FROM sessions a
    WHERE a.adopted_from = ANY ($1::uuid[]) AND a.status = 'PENDING' ORDER BY a.id FOR UPDATE
), orphaned AS (
    SELECT w.* FROM waiting w JOIN sessions o ON o.id = w.adopted_from
    WHERE o.status IN ('TERMINATED', 'CANCELLED')
), chosen AS (
    SELECT DISTINCT ON (w.project, w.request_hash) w.project, w.request_hash,
           coalesce(r.id, w.id) AS heir
    FROM orphaned w LEFT JOIN LATERAL (
        SELECT s.id FROM sessions s
        WHERE s.project = w.project AND s.request_hash = w.request_hash AND s.adopted_from IS NULL
          AND s.status NOT IN (:TERMINAL, 'TERMINATING')
        ORDER BY s.created_at DESC LIMIT 1) r ON true
    ORDER BY w.project, w.request_hash, w.created_at, w.id
), given AS (
    SELECT w.id, w.adopted_from AS before, c.heir
    FROM orphaned w JOIN chosen c USING (project, request_hash)
), released AS (
    DELETE FROM session_dependencies d USING given g
    WHERE d.session_id = g.id AND d.condition = 'adopted' AND d.depends_on = g.before
), shared AS (
    INSERT INTO session_dependencies (session_id, depends_on, condition)
    SELECT g.id, g.heir, 'adopted' FROM given g WHERE g.id <> g.heir
), moved AS (
    UPDATE sessions s SET
        adopted_from = nullif(g.heir, s.id), revision = s.revision + 1, hold = NULL,
        dependencies = s.dependencies - (s.id = g.heir)::int,
        deadline_at = CASE WHEN s.id = g.heir
            THEN greatest(now(), s.starts_at)
                + make_interval(secs => as_number(s.spec -> 'pending_timeout_s')) END
    FROM given g
    WHERE s.id = g.id
    RETURNING s.id, s.revision, g.before, g.heir
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT m.id, m.revision, 'redirected', 'PENDING', 'PENDING', 'manager',
           CASE WHEN m.id = m.heir
                THEN format('runs itself: session %s has ended without a result', m.before)
                ELSE format('shares the run of session %s: session %s has ended without a result',
                            m.heir, m.before) END
    FROM moved m
)
SELECT id FROM moved
