-- Roll up to $2 records of the ledger that ended more than $1 seconds ago, and whose sessions are
-- deleted, into months (UTC). A record that spans several months adds to each month the part that
-- falls within it. Records with a factor on their prices stay, because months have none.
WITH old AS (
    SELECT id FROM ledger l WHERE ended_at < now() - make_interval(secs => $1)
      AND l.price_factor = 1
      AND NOT EXISTS (SELECT FROM kernels k WHERE k.id = l.kernel_id) ORDER BY ended_at LIMIT $2
), removed AS (
    DELETE FROM ledger l USING old o WHERE l.id = o.id RETURNING l.*
), put AS (
    INSERT INTO ledger_months
        AS m (at, project, username, key_id, model, endpoint, resource_group, unit, device, amount)
    SELECT b.at AT TIME ZONE 'UTC', r.project, r.username, r.key_id, r.model, r.endpoint,
           r.resource_group, r.unit, r.device,
           sum(CASE WHEN r.rate = 0 THEN r.amount ELSE r.rate * extract(epoch FROM
               least(r.ended_at, (b.at + interval '1 month') AT TIME ZONE 'UTC')
                   - greatest(r.began_at, b.at AT TIME ZONE 'UTC'))::bigint END)
    FROM removed r CROSS JOIN LATERAL generate_series(
        date_trunc('month', r.began_at AT TIME ZONE 'UTC'),
        greatest(r.began_at, r.ended_at - interval '1 second') AT TIME ZONE 'UTC',
        interval '1 month') AS b(at)
    WHERE r.amount <> 0
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ON CONFLICT (at, project, username, key_id, model, endpoint, resource_group, unit, device)
        DO UPDATE SET amount = m.amount + excluded.amount
)
SELECT count(*) AS rolled FROM removed
