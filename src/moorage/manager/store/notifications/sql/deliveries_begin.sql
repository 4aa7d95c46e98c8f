-- Begin an attempt for due deliveries of the subscription $1, if its lease is still $2, and extend
-- the lease by $3 seconds: at most $4 deliveries. $5: the id of a new mail; deliveries that have
-- one already are attempted with the others of their mail. $6: only tests. The attempt is counted
-- before anything is sent, so a manager that dies cannot repeat it forever.
WITH held AS (
    UPDATE subscriptions SET leased_until = now() + make_interval(secs => $3)
    WHERE id = $1 AND lease = $2 RETURNING id, woken
), first AS (
    SELECT d.mail_id FROM deliveries d JOIN held h ON h.id = d.subscription_id
    WHERE d.state = 'pending' AND d.due_at <= now() AND (NOT $6::boolean OR d.event = 'test')
    ORDER BY d.due_at, d.id LIMIT 1
), due AS (
    SELECT d.id FROM deliveries d JOIN held h ON h.id = d.subscription_id
    WHERE d.state = 'pending' AND d.due_at <= now() AND (NOT $6::boolean OR d.event = 'test')
      AND EXISTS (SELECT FROM first f WHERE f.mail_id IS NOT DISTINCT FROM d.mail_id)
    ORDER BY d.due_at, d.id LIMIT $4 FOR UPDATE OF d
), begun AS (
    UPDATE deliveries d SET attempts = d.attempts + 1, attempted_at = now(),
        mail_id = coalesce(d.mail_id, $5)
    FROM due WHERE d.id = due.id
    RETURNING d.id, d.event, d.subject, d.happened_at, d.body, d.attempts, d.mail_id,
              extract(epoch FROM now() - d.created_at)::float8 AS age_s
)
SELECT h.woken, b.* FROM held h LEFT JOIN begun b ON true ORDER BY b.happened_at, b.id
