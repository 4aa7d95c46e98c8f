-- Extend the lease of holder $1 in term $2 to $3 seconds from now. It may have expired in the
-- meantime: as long as no other manager has begun a term, nothing was decided without this one. No
-- row: the lease was lost.
UPDATE leases SET expires_at = now() + make_interval(secs => $3)
WHERE name = 'leader' AND holder = $1 AND term = $2 RETURNING now() AS now
