-- What was made under a key before, and what was asked for then.
SELECT session_id, asked FROM idempotency_keys WHERE scope = $1 AND key = $2
