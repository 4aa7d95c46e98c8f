-- Delete segments older than $1 seconds, oldest first, at most $2 rows (index decisions_age).
DELETE FROM decisions WHERE id IN (
    SELECT id
    FROM decisions
    WHERE to_at < now() - make_interval(secs => $1)
    ORDER BY to_at
    LIMIT $2)
RETURNING id
