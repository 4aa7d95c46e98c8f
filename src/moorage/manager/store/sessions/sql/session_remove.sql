-- Remove the record of an ended session ($1) of these projects ($2). It is kept while it holds
-- allocations, or while others refer to it: a pipeline's step, a dependency, a run that others
-- share.
UPDATE sessions s SET removed_at = now()
WHERE s.id = $1::uuid AND ($2::text[] IS NULL OR s.project = ANY ($2)) AND s.removed_at IS NULL
  AND s.status IN (:TERMINAL)
  AND NOT EXISTS (SELECT FROM allocations a JOIN kernels k ON k.id = a.kernel_id
                  WHERE k.session_id = s.id AND a.released_at IS NULL)
  AND NOT EXISTS (SELECT FROM session_dependencies d WHERE d.depends_on = s.id)
  AND NOT EXISTS (SELECT FROM pipeline_steps p WHERE p.session_id = s.id)
  AND NOT EXISTS (SELECT FROM sessions o WHERE o.adopted_from = s.id AND o.removed_at IS NULL)
RETURNING s.id
