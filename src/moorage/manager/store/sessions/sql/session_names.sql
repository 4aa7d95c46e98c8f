-- Name and status of these sessions ($1) of these projects ($2), for messages about the sessions
-- that depend on them.
SELECT id, name, status
FROM sessions
WHERE id = ANY ($1::uuid[]) AND ($2::text[] IS NULL OR project = ANY ($2))
