-- Forget the oldest decisions until what is left has at most $1 bytes, at most $2 rows at a time.
WITH sums AS (
    SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM decisions
)
DELETE FROM decisions WHERE id IN (SELECT id FROM sums WHERE total > $1 ORDER BY id LIMIT $2)
RETURNING id
