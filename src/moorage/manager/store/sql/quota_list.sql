-- All quotas, or one (scope $1, name $2).
SELECT scope, name, slots, sessions, pending, changed_at, changed_by FROM quotas
WHERE $1::text IS NULL OR (scope = $1 AND name = $2) ORDER BY scope, name
