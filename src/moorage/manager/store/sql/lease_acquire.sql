-- Acquire or renew the lease. A new holder begins a new term; a renewal keeps it. No row: another manager holds the lease.
INSERT INTO leases AS l (name, holder, term, expires_at)
VALUES ('leader', $1, 1, now() + make_interval(secs => $2))
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, expires_at = excluded.expires_at,
    term = CASE WHEN l.holder = excluded.holder AND l.expires_at > now() THEN l.term ELSE l.term + 1 END
WHERE l.holder = excluded.holder OR l.expires_at <= now()
RETURNING term
