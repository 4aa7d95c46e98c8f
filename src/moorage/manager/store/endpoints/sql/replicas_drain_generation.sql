-- Tables of routes above this generation ($2) mark these replicas ($1) as draining, because the
-- generation was drawn after the mark was written.
UPDATE sessions SET drain_generation = $2
WHERE id = ANY ($1::uuid[]) AND draining_since IS NOT NULL AND drain_generation IS NULL
