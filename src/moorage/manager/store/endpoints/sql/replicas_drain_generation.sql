-- Tables of routes above this generation ($2) say that these replicas ($1) drain: it was drawn
-- after that was written.
UPDATE sessions SET drain_generation = $2
WHERE id = ANY ($1::uuid[]) AND draining_since IS NOT NULL AND drain_generation IS NULL
