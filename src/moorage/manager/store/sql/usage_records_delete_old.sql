-- Delete hours older than $1 seconds, at most $2 of them, and epochs whose last record was rolled up before.
WITH epochs AS (
    DELETE FROM usage_epochs WHERE at < now() - make_interval(secs => $1)
)
DELETE FROM usage_hours h USING (
    SELECT at, project, username, key_id, model, endpoint, session_id, resource_group FROM usage_hours
    WHERE at < now() - make_interval(secs => $1) ORDER BY at LIMIT $2
) o
WHERE (h.at, h.project, h.username, h.key_id, h.model, h.endpoint, h.session_id, h.resource_group)
    = (o.at, o.project, o.username, o.key_id, o.model, o.endpoint, o.session_id, o.resource_group)
RETURNING h.at
