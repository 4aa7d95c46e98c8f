-- All quotas, or one (scope $1, name $2). $3: only of these projects, of the user $4, and of
-- groups.
SELECT scope, name, slots, sessions, pending, node_seconds, system_sessions, version, changed_at,
       changed_by
FROM quotas
WHERE ($1::text IS NULL OR (scope = $1 AND name = $2))
  AND ($3::text[] IS NULL OR scope = 'group' OR (scope = 'user' AND name = $4::text)
       OR (scope = 'project' AND name = ANY ($3)))
ORDER BY scope, name
