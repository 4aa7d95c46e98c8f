-- name: quota_put
-- Replace a quota. $9: the versions that it may have now (NULL allows any, or none). No row: it has
-- another version, or its resource group does not exist.
INSERT INTO quotas (scope, name, slots, sessions, pending, node_seconds, system_sessions,
                    changed_by)
SELECT $1, $2, $3::jsonb, $4::int, $5::int, $6::bigint, $7::int, $8
WHERE ($1 <> 'group' OR EXISTS (SELECT FROM resource_groups WHERE name = $2 AND renamed_to IS NULL))
  AND ($9::bigint[] IS NULL
       OR EXISTS (SELECT FROM quotas WHERE scope = $1 AND name = $2 FOR UPDATE))
ON CONFLICT (scope, name) DO UPDATE SET slots = excluded.slots, sessions = excluded.sessions,
    pending = excluded.pending, node_seconds = excluded.node_seconds,
    system_sessions = excluded.system_sessions, changed_at = now(), changed_by = excluded.changed_by
WHERE $9::bigint[] IS NULL OR quotas.version = ANY ($9)
RETURNING name

-- name: quota_list
-- All quotas, or one (scope $1, name $2). $3: only of these projects, of the user $4, and of
-- groups.
SELECT scope, name, slots, sessions, pending, node_seconds, system_sessions, version, changed_at,
       changed_by
FROM quotas
WHERE ($1::text IS NULL OR (scope = $1 AND name = $2))
  AND ($3::text[] IS NULL OR scope = 'group' OR (scope = 'user' AND name = $4::text)
       OR (scope = 'project' AND name = ANY ($3)))
ORDER BY scope, name

-- name: quota_delete
-- $3: the versions that it may have (NULL: any).
DELETE FROM quotas
WHERE scope = $1 AND name = $2 AND ($3::bigint[] IS NULL OR version = ANY ($3)) RETURNING name
