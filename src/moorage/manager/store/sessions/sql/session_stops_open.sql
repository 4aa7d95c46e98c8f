-- Stops that were requested at least $1 seconds ago and are not completed, oldest first.
SELECT id, asked_at, asked_by, reason FROM session_stops
WHERE asked_at <= now() - make_interval(secs => $1) ORDER BY asked_at, id LIMIT 100
