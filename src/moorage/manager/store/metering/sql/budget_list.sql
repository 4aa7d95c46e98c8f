-- The budgets that a caller may see: those of its projects ($1; NULL: everyone's), and those of the
-- user $2 and the user's keys.
SELECT b.* FROM budgets b
WHERE $1::text[] IS NULL OR (b.scope = 'project' AND b.name = ANY ($1))
  OR (b.scope = 'user' AND b.name = $2)
   OR (b.scope = 'key'
       AND EXISTS (SELECT FROM api_keys k
                   WHERE k.name = b.name AND k.revoked_at IS NULL AND k.owner = $2
                     AND k.project = ANY ($1)))
ORDER BY b.scope, b.name, b.unit, b.period
