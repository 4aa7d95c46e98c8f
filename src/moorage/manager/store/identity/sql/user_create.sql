-- No row: the name is taken.
INSERT INTO users (name, email, status, platform_role, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO NOTHING RETURNING name
