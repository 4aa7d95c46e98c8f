-- Resolve the next $2 open expected starts, of sessions after $1 (index expected_starts_open),
-- whose attempt is no longer pending, by the first placement after the estimate, if there was one
-- (history by its primary key). A placement that was being committed when the estimate was written
-- may have a slightly earlier time. Returns how many were resolved, and the last session if there
-- may be more.
WITH chunk AS MATERIALIZED (
    SELECT session_id, attempt, expected_at, told_at FROM expected_starts
    WHERE outcome = '' AND session_id > $1::uuid ORDER BY session_id LIMIT $2
), resolved AS (
    UPDATE expected_starts e
    SET outcome = CASE WHEN p.at IS NULL THEN 'not-started' ELSE 'started' END, started_at = p.at
    FROM chunk o LEFT JOIN sessions s ON s.id = o.session_id LEFT JOIN LATERAL (
        SELECT h.at FROM session_history h
        WHERE h.session_id = o.session_id AND h.event = 'placed'
          AND h.at >= o.told_at - interval '1 second'
        ORDER BY h.at LIMIT 1) p ON true
    WHERE (e.session_id, e.attempt, e.expected_at) = (o.session_id, o.attempt, o.expected_at)
      AND (s.id IS NULL OR s.status <> 'PENDING' OR s.attempt <> o.attempt)
    RETURNING 1
)
SELECT (SELECT count(*) FROM resolved) AS resolved,
       (SELECT session_id
        FROM chunk
        WHERE (SELECT count(*) FROM chunk) = $2 ORDER BY session_id DESC LIMIT 1) AS last
