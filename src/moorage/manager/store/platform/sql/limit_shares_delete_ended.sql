-- Delete up to $1 rows in which every share ended an hour ago. The lock reads a row that changes
-- meanwhile again. A share is valid for seconds; in an hour nobody writes what he has read before
-- the row was deleted, and may be taken for the reader of a later one.
DELETE FROM limit_shares WHERE subject = ANY (ARRAY(
    SELECT l.subject FROM limit_shares l
    WHERE NOT EXISTS (SELECT FROM jsonb_each(as_object(l.shares)) v
                      WHERE as_number(v.value -> 'until')
                          > extract(epoch FROM now() - interval '1 hour'))
    LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING 1
