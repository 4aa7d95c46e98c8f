-- No row: the name is taken.
INSERT INTO projects (name, status, max_priority, resource_groups, created_by,
                      requests_per_minute, tokens_per_minute, concurrent_requests, reuse)
VALUES ($1, $2, $3, $4::text[], $5, $6, $7, $8, $9)
ON CONFLICT (name) DO NOTHING RETURNING name
