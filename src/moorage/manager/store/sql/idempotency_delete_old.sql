-- Delete keys older than $1 hours (index idempotency_keys_age).
DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(hours => $1)
