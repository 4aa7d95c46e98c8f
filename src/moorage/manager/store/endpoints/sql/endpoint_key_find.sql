-- The endpoint that was created or changed under an idempotency key, and the digest of that
-- request.
SELECT endpoint_id AS repeated, request_digest
FROM endpoint_idempotency_keys
WHERE scope = $1 AND key = $2
