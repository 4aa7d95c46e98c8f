-- Delete up to $2 keys older than $1 seconds (index idempotency_keys_age).
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1)
    ORDER BY created_at LIMIT $2))
RETURNING 1
