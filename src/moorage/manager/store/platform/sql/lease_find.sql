SELECT holder, term, expires_at, now() AS now
FROM leases WHERE name = 'leader'
