-- Mark silent agents: SUSPECT after $1 seconds, LOST after $1 + $2. Returns those that changed.
UPDATE agents SET status = CASE WHEN last_seen < now() - make_interval(secs => $1 + $2) THEN 'LOST' ELSE 'SUSPECT' END
WHERE (status = 'ALIVE' AND last_seen < now() - make_interval(secs => $1))
   OR (status = 'SUSPECT' AND last_seen < now() - make_interval(secs => $1 + $2))
RETURNING id, status
