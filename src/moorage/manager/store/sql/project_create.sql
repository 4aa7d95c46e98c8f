-- No row: the name is taken.
INSERT INTO projects (name, status, max_priority, resource_groups, created_by) VALUES ($1, $2, $3, $4::text[], $5)
ON CONFLICT (name) DO NOTHING RETURNING name
