-- Record the end of an attempt for the deliveries $2 of the subscription $1: their state $3, the
-- answer $4, and after how many seconds they are due again ($5, if they are pending). For the
-- subscription: whether the attempt succeeded ($6), whether a failure counts against the receiver
-- ($7), a pause in seconds ($8; NULL: none), and why it is disabled ($9; '': it is not). It is
-- recorded also if the lease has ended in the meantime, because it has happened.
WITH ended AS (
    UPDATE deliveries SET state = $3, answer = $4,
        due_at = CASE WHEN $3 = 'pending' THEN now() + make_interval(secs => $5) END,
        ended_at = CASE WHEN $3 <> 'pending' THEN now() END
    WHERE id = ANY ($2::uuid[]) AND state = 'pending'
    RETURNING state
)
UPDATE subscriptions s SET
    queued = s.queued - (SELECT count(*) FROM ended WHERE state <> 'pending'),
    failures = CASE WHEN $6::boolean THEN 0 ELSE s.failures + 1 END,
    failing_since = CASE WHEN $6 THEN NULL WHEN $7::boolean THEN coalesce(s.failing_since, now())
                         ELSE s.failing_since END,
    retry_at = now() + make_interval(secs => $8),
    reason = CASE WHEN $9 <> '' THEN $9 WHEN NOT s.enabled THEN s.reason
                  WHEN $6 THEN '' ELSE $4 END,
    enabled = s.enabled AND $9 = ''
WHERE s.id = $1 RETURNING s.enabled
