-- Forget what was decided longer than $1 seconds ago, at most $2 rows, the oldest first (index decisions_age).
DELETE FROM decisions WHERE id IN (
    SELECT id FROM decisions WHERE to_at < now() - make_interval(secs => $1) ORDER BY to_at LIMIT $2)
RETURNING id
