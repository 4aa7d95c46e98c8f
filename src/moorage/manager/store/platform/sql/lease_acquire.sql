-- Acquire the lease ($1: holder, $2: seconds), or renew it. A new holder begins a new term; a
-- renewal keeps it. $3: the end of a lease that, by the caller's own clock, has not been renewed
-- for its whole length; it is treated as expired no matter what the database's clock shows. $4: the
-- newest schema that the caller knows; the trigger leases_refuse_older_leader checks and stores it.
-- No row: another manager holds the lease, or the schema is newer.
INSERT INTO leases AS l (name, holder, term, expires_at, schema)
SELECT 'leader', $1, 1, now() + make_interval(secs => $2), $4
FROM set_config('moorage.schema', $4, true)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, expires_at = excluded.expires_at,
    term = CASE WHEN l.holder = excluded.holder AND l.expires_at > now() THEN l.term
                ELSE l.term + 1 END
WHERE l.holder = excluded.holder OR l.expires_at <= now() OR l.expires_at = $3
RETURNING term
