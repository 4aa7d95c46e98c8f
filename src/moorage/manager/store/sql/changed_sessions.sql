-- What an event says about these sessions ($1).
SELECT id, name, project, owner AS "user", resource_group, type, status, reason, attempt, revision, status_since,
       endpoint_id
FROM sessions WHERE id = ANY ($1::uuid[])
