-- The request that used an idempotency key ($1 scope, $2 key), and the pipeline that it created, if
-- it was one.
SELECT k.request_digest, p.pipeline_id FROM idempotency_keys k
LEFT JOIN pipeline_steps p ON p.session_id = k.session_id AND p.run = 1
WHERE k.scope = $1 AND k.key = $2
