-- name: subscription_list
-- The subscriptions that the user $1 owns in project $2 (NULL: in all), those of the projects $3
-- (NULL: all), if `$4` also those of other users there; only $5 if it is not NULL.
SELECT
-- include: subscription_columns
       , l.event AS last_event, l.state AS last_state, l.attempts AS last_attempts,
       l.attempted_at AS last_at, l.answer AS last_answer
FROM subscriptions s
LEFT JOIN LATERAL (
    SELECT d.event, d.state, d.attempts, d.attempted_at, d.answer FROM deliveries d
    WHERE d.subscription_id = s.id AND d.attempted_at IS NOT NULL
    ORDER BY d.created_at DESC, d.id DESC LIMIT 1) l ON true
WHERE ($5::uuid IS NULL OR s.id = $5)
  AND ($3::text[] IS NULL
       OR (s.project = ANY ($3) AND (s.shared OR s.user_name = $1 OR $4::boolean)))
  AND ($2::text IS NULL OR s.project = $2)

-- name: subscription_update
-- No row: there is none, or it has another version than $2 allows (NULL: any).
UPDATE subscriptions s SET
    events = $3, own = $4, resource_groups = $5, selector = $6, session_name = $7, waiting_s = $8,
    before_end_s = $9, enabled = $10,
    reason = CASE WHEN NOT $10 THEN $11 WHEN s.enabled THEN s.reason ELSE '' END,
    failures = CASE WHEN s.enabled THEN s.failures ELSE 0 END,
    failing_since = CASE WHEN s.enabled THEN s.failing_since END,
    retry_at = CASE WHEN s.enabled THEN s.retry_at END,
    next_at = CASE WHEN NOT s.enabled AND s.queued > 0 THEN now() ELSE s.next_at END,
    woken = s.woken + 1,
    checked_at = CASE WHEN s.enabled AND s.waiting_s = $8 AND s.before_end_s = $9
                      THEN s.checked_at ELSE now() END
WHERE s.id = $1 AND ($2::bigint[] IS NULL OR s.version = ANY ($2))
RETURNING s.id

-- name: subscription_delete
WITH gone AS (
    DELETE FROM subscriptions WHERE id = $1 RETURNING id
)
DELETE FROM secrets x USING gone g WHERE x.project = '' AND x.name = 'subscription/' || g.id
RETURNING g.id

-- name: subscription_reseal
-- Replace the URL and secret of the subscription $1. No row: the caller's keyring ($5) lacks a key
-- with which another secret is encrypted.
WITH sealed AS (
    UPDATE secrets SET key_id = $2, sealed = $3, version = version + 1, changed_at = now(),
        changed_by = $4
    WHERE project = '' AND name = 'subscription/' || $1::text
      AND NOT EXISTS (SELECT FROM secrets WHERE key_id <> ALL ($5::text[]))
    RETURNING 1
)
UPDATE subscriptions s SET previous_secret_until = $6 FROM sealed WHERE s.id = $1::text::uuid
RETURNING s.id

-- name: subscription_sealed
SELECT key_id, sealed FROM secrets
WHERE project = '' AND name = 'subscription/' || $1::text AND deleted_at IS NULL

-- name: subscription_named
-- The subscriptions of the user $1 in project $2 with the names $3.
SELECT name FROM subscriptions
WHERE user_name = $1 AND project = $2 AND NOT shared AND name = ANY ($3::text[])

-- name: subscription_address
-- The e-mail address of the user $1.
SELECT email FROM users WHERE name = $1

-- name: delivery_list
SELECT id, event, subject, happened_at, state, attempts, attempted_at, due_at AS next_attempt_at,
       answer, created_at
FROM deliveries WHERE subscription_id = $1

-- name: delivery_test
-- Queue a test event of the subscription $1, which is sent also if it is disabled.
WITH added AS (
    INSERT INTO deliveries (id, subscription_id, event, key, subject, happened_at, body, due_at)
    SELECT $2::text::uuid, s.id, 'test', 'test:' || $2, $3, now(), $4, now() FROM subscriptions s
    WHERE s.id = $1::text::uuid AND s.queued < $5
    RETURNING subscription_id
)
UPDATE subscriptions s SET queued = s.queued + 1, woken = s.woken + 1, next_at = now(),
    retry_at = NULL
FROM added a WHERE s.id = a.subscription_id
RETURNING s.id
