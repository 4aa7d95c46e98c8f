-- The session that was created under an idempotency key, and the digest of that request.
SELECT session_id, request_digest FROM idempotency_keys WHERE scope = $1 AND key = $2
