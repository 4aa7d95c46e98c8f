-- Queue deliveries ($2 to $9) and remove the events ($1) from the outbox, both or neither. An event
-- that another manager has removed ($4: its id, NULL for an event that was not in the outbox) is
-- not queued again. A queue has at most $10 deliveries. Returns the subscriptions.
WITH taken AS (
    DELETE FROM event_outbox WHERE id = ANY ($1::bigint[]) RETURNING id
), input AS (
    SELECT i.* FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[],
                           $8::timestamptz[], $9::jsonb[])
        WITH ORDINALITY
        AS i(id, subscription_id, outbox_id, event, key, subject, at, body, position)
    WHERE i.outbox_id IS NULL OR i.outbox_id IN (SELECT id FROM taken)
), locked AS (
    SELECT s.id, s.queued FROM subscriptions s
    WHERE s.id IN (SELECT subscription_id FROM input) ORDER BY s.id FOR UPDATE
), fresh AS (
    SELECT i.*, l.queued + row_number() OVER (PARTITION BY i.subscription_id ORDER BY i.position)
        AS place
    FROM input i JOIN locked l ON l.id = i.subscription_id
), added AS (
    INSERT INTO deliveries (id, subscription_id, event, key, subject, happened_at, body, due_at)
    SELECT id, subscription_id, event, key, subject, at, body, now() FROM fresh WHERE place <= $10
    ON CONFLICT (subscription_id, key) DO NOTHING
    RETURNING subscription_id
), counted AS (
    SELECT l.id, (SELECT count(*) FROM added a WHERE a.subscription_id = l.id) AS added,
           (SELECT count(*) FROM fresh f WHERE f.subscription_id = l.id AND f.place > $10)
               AS dropped
    FROM locked l
)
UPDATE subscriptions s SET queued = s.queued + c.added, dropped = s.dropped + c.dropped,
    woken = s.woken + 1, next_at = greatest(now(), s.retry_at)
FROM counted c WHERE s.id = c.id AND c.added + c.dropped > 0
RETURNING s.id
