-- What came of up to $1 expected starts whose attempt is not pending any more: the first placement after the answer, if there
-- was one (index expected_starts_open; history by its primary key). One that was being committed when the answer was written
-- may bear a slightly earlier time.
WITH open AS MATERIALIZED (
    SELECT e.session_id, e.attempt, e.expected_at, e.told_at FROM expected_starts e LEFT JOIN sessions s ON s.id = e.session_id
    WHERE e.outcome = '' AND (s.id IS NULL OR s.status <> 'PENDING' OR s.attempt <> e.attempt)
    LIMIT $1
)
UPDATE expected_starts e
SET outcome = CASE WHEN p.at IS NULL THEN 'not-started' ELSE 'started' END, started_at = p.at
FROM open o LEFT JOIN LATERAL (
    SELECT h.at FROM session_history h WHERE h.session_id = o.session_id AND h.event = 'placed' AND h.at >= o.told_at - interval '1 second'
    ORDER BY h.at LIMIT 1) p ON true
WHERE (e.session_id, e.attempt, e.expected_at) = (o.session_id, o.attempt, o.expected_at)
RETURNING e.resource_group
