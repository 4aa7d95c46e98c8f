-- Save changed round-robin cursors ($2) of a group ($1), under the leader's term ($3).
UPDATE resource_groups SET cursors = cursors || $2::jsonb
WHERE name = $1
  AND EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $3 AND expires_at > now())
