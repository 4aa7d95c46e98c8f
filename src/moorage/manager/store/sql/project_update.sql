UPDATE projects SET status = $2, max_priority = $3, resource_groups = $4::text[] WHERE name = $1 RETURNING name
