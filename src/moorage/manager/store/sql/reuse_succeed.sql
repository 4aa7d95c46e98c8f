-- For sessions ($1) that have ended without a result of their own, because they were stopped or never placed: the oldest
-- of the pending sessions that share their run takes their place in the queue, and the others share its run. If an equal
-- request has begun to run meanwhile, all of them share that one's.
WITH waiting AS MATERIALIZED (
    SELECT a.id, a.adopted_from, a.created_at, a.project, a.request_hash
    FROM sessions a WHERE a.adopted_from = ANY ($1::uuid[]) AND a.status = 'PENDING' ORDER BY a.id FOR UPDATE
), chosen AS (
    SELECT DISTINCT ON (w.adopted_from) w.adopted_from AS before, coalesce(r.id, w.id) AS heir
    FROM waiting w JOIN sessions o ON o.id = w.adopted_from LEFT JOIN LATERAL (
        SELECT s.id FROM sessions s
        WHERE s.project = w.project AND s.request_hash = w.request_hash AND s.adopted_from IS NULL
          AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR', 'TERMINATING')
        ORDER BY s.created_at DESC LIMIT 1) r ON true
    WHERE o.status IN ('TERMINATED', 'CANCELLED')
    ORDER BY w.adopted_from, w.created_at, w.id
), released AS (
    DELETE FROM session_dependencies d USING waiting w, chosen c
    WHERE d.session_id = w.id AND d.condition = 'adopted' AND d.depends_on = w.adopted_from AND c.before = w.adopted_from
), shared AS (
    INSERT INTO session_dependencies (session_id, depends_on, condition)
    SELECT w.id, c.heir, 'adopted' FROM waiting w JOIN chosen c ON c.before = w.adopted_from WHERE w.id <> c.heir
), moved AS (
    UPDATE sessions s SET
        adopted_from = nullif(c.heir, s.id), revision = s.revision + 1, hold = NULL,
        dependencies = s.dependencies - (s.id = c.heir)::int,
        deadline_at = CASE WHEN s.id = c.heir
            THEN greatest(now(), s.starts_at) + make_interval(secs => (s.spec ->> 'pending_timeout_s')::float8) END
    FROM waiting w JOIN chosen c ON c.before = w.adopted_from
    WHERE s.id = w.id
    RETURNING s.id, s.revision, c.before, c.heir
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT m.id, m.revision, 'adopted', 'PENDING', 'PENDING', 'manager',
           CASE WHEN m.id = m.heir THEN format('runs itself: session %s has ended without a result', m.before)
                ELSE format('shares the run of session %s: session %s has ended without a result', m.heir, m.before) END
    FROM moved m
)
SELECT id FROM moved
