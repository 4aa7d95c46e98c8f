-- Delete up to $1 rows in which every share ended an hour ago. Locking a row rereads it if it
-- changes concurrently. A share is valid only for seconds, so after an hour nothing writes data
-- that was read before the row was deleted.
DELETE FROM limit_shares WHERE subject = ANY (ARRAY(
    SELECT l.subject FROM limit_shares l
    WHERE NOT EXISTS (SELECT FROM jsonb_each(as_object(l.shares)) v
                      WHERE as_number(v.value -> 'until')
                          > extract(epoch FROM now() - interval '1 hour'))
    LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING 1
