-- name: deliveries_claim
-- Claim up to $3 subscriptions with due deliveries, each for $2 seconds under the lease $1. Another
-- manager takes a subscription over when its lease has ended.
WITH due AS (
    SELECT id FROM subscriptions
    WHERE next_at <= now() AND (leased_until IS NULL OR leased_until <= now())
    ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE subscriptions s SET lease = $1, leased_until = now() + make_interval(secs => $2)
FROM due d WHERE s.id = d.id
RETURNING s.id, s.name, s.channel, s.format, s.target, s.enabled, s.failures,
          extract(epoch FROM now() - s.failing_since)::float8 AS failing_s,
          s.previous_secret_until > now() AS signs_twice,
          (SELECT email FROM users u WHERE u.name = s.user_name) AS email,
-- include: subscription_allowed
          AS allowed

-- name: deliveries_release
-- End the lease $2 of the subscription $1, and set when its next delivery is due. If the queue has
-- grown since `deliveries_begin` returned $3, it is due now: this statement may not see what was
-- added.
UPDATE subscriptions s SET lease = NULL, leased_until = NULL,
    next_at = CASE
        WHEN s.woken <> $3 THEN greatest(now(), s.retry_at)
        WHEN NOT s.enabled THEN NULL
        ELSE (SELECT greatest(min(d.due_at), s.retry_at) FROM deliveries d
              WHERE d.subscription_id = s.id AND d.state = 'pending' HAVING count(*) > 0) END
WHERE s.id = $1 AND s.lease = $2 RETURNING s.next_at

-- name: deliveries_disable
UPDATE subscriptions SET enabled = false, reason = $2, next_at = NULL
WHERE id = $1 AND enabled RETURNING id

-- name: deliveries_expire
-- Give up the deliveries that are older than $1 seconds, at most $2.
WITH old AS (
    SELECT id FROM deliveries
    WHERE state = 'pending' AND created_at < now() - make_interval(secs => $1)
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE deliveries d SET state = 'failed', due_at = NULL, ended_at = now(),
        answer = CASE WHEN d.answer = '' THEN 'not sent in time' ELSE d.answer END
    FROM old o WHERE d.id = o.id RETURNING d.subscription_id
), counted AS (
    SELECT subscription_id, count(*) AS n FROM ended GROUP BY subscription_id
)
UPDATE subscriptions s SET queued = s.queued - c.n FROM counted c
WHERE s.id = c.subscription_id RETURNING c.n

-- name: deliveries_delete_old
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries
    WHERE state <> 'pending' AND ended_at < now() - make_interval(secs => $1)
    ORDER BY ended_at LIMIT $2)
RETURNING 1

-- name: deliveries_next
-- Seconds until a delivery is due; no row: none is.
SELECT extract(epoch FROM next_at - now())::float8 AS seconds FROM subscriptions
WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1
