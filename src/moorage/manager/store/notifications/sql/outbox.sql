-- name: subscriptions_any
SELECT EXISTS (SELECT FROM subscriptions WHERE enabled) AS any

-- name: outbox_read
SELECT id, event, subject, revision, at, body FROM event_outbox ORDER BY id LIMIT $1

-- name: outbox_sessions
-- What subscriptions may know of the sessions $1. `steps`: the pipeline to which a session belongs.
SELECT s.id, s.name, s.project, s.owner, s.resource_group, s.user_labels, s.type, s.status,
       s.result, s.reason, s.attempt, s.created_at, s.ready_at, s.deadline_at,
       s.endpoint_id, s.spec -> 'notify' AS notify, p.pipeline_id, k.exit_code
FROM sessions s
LEFT JOIN pipeline_steps p ON p.session_id = s.id
LEFT JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt AND k.cluster_role = 'main'
WHERE s.id = ANY ($1::uuid[])

-- name: outbox_pipelines
-- The pipelines $1 whose steps have all ended, by their newest runs. `runs` grows with each retry.
SELECT p.id, p.name, p.project, p.owner, c.steps, c.failed, c.runs
FROM pipelines p JOIN LATERAL (
    SELECT count(*) AS steps, sum(n.run) AS runs,
           count(*) FILTER (WHERE n.status NOT IN (:TERMINAL)) AS live,
           count(*) FILTER (WHERE n.status <> 'TERMINATED' OR n.result = 'FAILED') AS failed
    FROM (SELECT DISTINCT ON (t.step, t.index) t.run, s.status, s.result
          FROM pipeline_steps t JOIN sessions s ON s.id = t.session_id
          WHERE t.pipeline_id = p.id ORDER BY t.step, t.index, t.run DESC) n) c ON true
WHERE p.id = ANY ($1::uuid[]) AND c.live = 0

-- name: outbox_endpoints
SELECT id, name, project, owner, spec ->> 'resource_group' AS resource_group FROM endpoints
WHERE id = ANY ($1::uuid[])

-- name: outbox_keys
-- The owners of the API keys with the names $1.
SELECT name, owner FROM api_keys WHERE name = ANY ($1::text[]) AND revoked_at IS NULL

-- name: outbox_subscriptions
-- The subscriptions that may get events. `allowed`: whether their owner may still read them.
SELECT
-- include: subscription_columns
       , s.checked_at,
-- include: subscription_allowed
       AS allowed
FROM subscriptions s WHERE s.enabled

-- name: outbox_ending
-- For subscriptions ($1) that examined running sessions up to $2 and report them $3 seconds before
-- their end: the sessions whose time limit is now ($4) so near.
SELECT i.subscription_id::text, s.id
FROM unnest($1::uuid[], $2::timestamptz[], $3::float8[]) AS i(subscription_id, after, before_s)
JOIN sessions s ON s.status = 'RUNNING' AND s.status NOT IN (:TERMINAL)
    AND s.deadline_at > i.after + make_interval(secs => i.before_s)
    AND s.deadline_at <= $4::timestamptz + make_interval(secs => i.before_s)

-- name: outbox_checked
UPDATE subscriptions SET checked_at = $2
WHERE id = ANY ($1::uuid[]) AND checked_at < $2 RETURNING id

-- name: outbox_degraded
-- Add the endpoints that have been degraded for $1 seconds to the outbox, once each.
WITH due AS (
    UPDATE degraded_endpoints SET reported = true
    WHERE NOT reported AND since <= now() - make_interval(secs => $1)
    RETURNING endpoint_id, since
)
INSERT INTO event_outbox (event, subject, revision, at, body)
SELECT 'endpoint.degraded', endpoint_id::text, extract(epoch FROM since)::bigint, since, '{}'
FROM due WHERE EXISTS (SELECT FROM subscriptions WHERE enabled)
RETURNING id

-- name: endpoint_degraded
INSERT INTO degraded_endpoints (endpoint_id)
SELECT id FROM endpoints WHERE id = $1 AND deleted_at IS NULL
ON CONFLICT (endpoint_id) DO NOTHING RETURNING endpoint_id

-- name: endpoint_recovered
DELETE FROM degraded_endpoints WHERE endpoint_id = $1 RETURNING endpoint_id

-- name: endpoints_degraded
SELECT endpoint_id FROM degraded_endpoints
