-- Delete the oldest segments until $1 bytes are left, at most $2 rows at a time.
WITH sums AS (
    SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM decisions
)
DELETE FROM decisions WHERE id IN (SELECT id FROM sums WHERE total > $1 ORDER BY id LIMIT $2)
RETURNING id
