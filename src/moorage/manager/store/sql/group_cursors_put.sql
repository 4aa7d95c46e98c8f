-- Whom round-robin chose last in a group ($1): those that moved ($2), as the leader of this term ($3) says.
UPDATE resource_groups SET cursors = cursors || $2::jsonb
WHERE name = $1 AND EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $3 AND expires_at > now())
