UPDATE projects SET status = $2, max_priority = $3, resource_groups = $4::text[],
    requests_per_minute = $5, tokens_per_minute = $6, concurrent_requests = $7
WHERE name = $1 RETURNING name
