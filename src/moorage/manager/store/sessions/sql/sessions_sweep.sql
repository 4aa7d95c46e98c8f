-- Among the next chunk of $3 live sessions, newest first, after the one created at $1 with id $2
-- (index sessions_live_newest), those to reconcile because a kernel is in another status or a
-- dependency has failed, and the end of the chunk. `at` is NULL if it was the last one.
WITH chunk AS MATERIALIZED (
    SELECT s.id, s.created_at, s.status, s.attempt, s.dependencies,
           s.spec ->> 'dependency_failed' AS dependency_failed
    FROM sessions s
    WHERE s.status NOT IN (:TERMINAL) AND (s.created_at, s.id) < ($1::timestamptz, $2::uuid)
    ORDER BY s.created_at DESC, s.id DESC LIMIT $3
), last AS (
    SELECT created_at, id
    FROM chunk
    WHERE (SELECT count(*) FROM chunk) = $3 ORDER BY created_at, id LIMIT 1
)
SELECT (SELECT created_at FROM last) AS at, (SELECT id FROM last) AS id, ARRAY(
    SELECT c.id FROM chunk c
    WHERE EXISTS (SELECT FROM kernels k
                  WHERE k.session_id = c.id AND k.attempt = c.attempt AND k.status <> c.status)
       OR (c.status = 'PENDING' AND c.dependencies > 0 AND EXISTS (
           SELECT FROM dependency_outcomes(c.id) o
           WHERE o.state = 'failed'
             AND (c.dependency_failed IS DISTINCT FROM 'wait' OR o.condition = 'adopted')))
) AS sessions
