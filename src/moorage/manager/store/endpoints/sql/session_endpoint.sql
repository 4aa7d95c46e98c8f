-- The endpoint of which a session ($1) is a replica.
SELECT endpoint_id FROM sessions WHERE id = $1 AND endpoint_id IS NOT NULL
