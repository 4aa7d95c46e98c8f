UPDATE leases SET expires_at = now() WHERE name = 'leader' AND holder = $1 AND term = $2
