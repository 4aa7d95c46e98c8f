-- End the lease of holder $1 in term $2 now. Without a holder, a concurrent renewal finds nothing.
UPDATE leases SET expires_at = now(), holder = ''
WHERE name = 'leader' AND holder = $1 AND term = $2
