-- name: project_create
-- No row: the name is taken.
INSERT INTO projects (name, status, max_priority, resource_groups, created_by,
                      requests_per_minute, tokens_per_minute, concurrent_requests, reuse)
VALUES ($1, $2, $3, $4::text[], $5, $6, $7, $8, $9)
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: project_list
-- All of these projects ($1), or the one of them that is named $2. $3: archived ones too.
SELECT p.id, p.name, p.status, p.max_priority, p.resource_groups, p.requests_per_minute,
       p.tokens_per_minute, p.concurrent_requests, p.reuse, p.version, p.created_at, p.created_by,
       p.archived_at, p.archived_by,
       (SELECT count(*) FROM memberships m WHERE m.project = p.name) AS members
FROM projects p
WHERE ($1::text[] IS NULL OR p.name = ANY ($1)) AND ($2::text IS NULL OR p.name = $2)
  AND ($3 OR p.archived_at IS NULL)

-- name: project_update
-- $8: the versions that it may have now (NULL: any).
UPDATE projects SET status = $2, max_priority = $3, resource_groups = $4::text[],
    requests_per_minute = $5, tokens_per_minute = $6, concurrent_requests = $7, reuse = $9
WHERE name = $1 AND ($8::bigint[] IS NULL OR version = ANY ($8)) RETURNING name

-- name: project_archive
-- No row: it is archived already, or does not exist. The trigger projects_archive refuses a project
-- that is in use.
UPDATE projects SET archived_at = now(), archived_by = $2, archived_status = status,
    status = 'disabled'
WHERE name = $1 AND archived_at IS NULL RETURNING name

-- name: project_restore
UPDATE projects SET archived_at = NULL, archived_by = '', archived_status = NULL,
    status = archived_status
WHERE name = $1 AND archived_at IS NOT NULL RETURNING name

-- name: project_delete
-- The trigger projects_delete refuses one that anything names.
DELETE FROM projects WHERE name = $1 RETURNING name

-- name: member_list
-- The members of project $2, if it is one of these ($1): all, or the user $3.
SELECT project, user_name AS "user", role, changed_at, changed_by FROM memberships
WHERE ($1::text[] IS NULL OR project = ANY ($1)) AND project = $2
  AND ($3::text IS NULL OR user_name = $3)

-- name: member_put
-- No row: the user does not exist, or the project is not one of these ($1).
INSERT INTO memberships (project, user_name, role, changed_by)
SELECT $2, u.name, $4, $5 FROM users u
WHERE u.name = $3 AND ($1::text[] IS NULL OR $2 = ANY ($1))
  AND EXISTS (SELECT FROM projects WHERE name = $2)
ON CONFLICT (project, user_name)
DO UPDATE SET role = excluded.role, changed_by = excluded.changed_by, changed_at = now()
RETURNING project, user_name AS "user", role, changed_at, changed_by

-- name: member_delete
DELETE FROM memberships
WHERE ($1::text[] IS NULL OR project = ANY ($1)) AND project = $2 AND user_name = $3
RETURNING project, user_name AS "user", role, changed_at, changed_by
