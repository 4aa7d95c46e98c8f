-- Name and status of these sessions ($1), for messages about the sessions that depend on them.
SELECT id, name, status FROM sessions WHERE id = ANY ($1::uuid[])
