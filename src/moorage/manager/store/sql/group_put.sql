INSERT INTO resource_groups (name, options) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET options = excluded.options
