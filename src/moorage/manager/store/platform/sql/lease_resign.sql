-- End the lease of holder $1 in term $2 now. Without a holder, a renewal that is still under way
-- finds nothing.
UPDATE leases SET expires_at = now(), holder = ''
WHERE name = 'leader' AND holder = $1 AND term = $2
