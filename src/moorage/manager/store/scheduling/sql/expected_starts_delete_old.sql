-- Delete up to $2 expected starts that were shown more than $1 seconds ago (index
-- expected_starts_age).
DELETE FROM expected_starts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM expected_starts
    WHERE told_at < now() - make_interval(secs => $1) ORDER BY told_at LIMIT $2))
RETURNING 1
