-- $8: the versions that it may have now (NULL: any).
UPDATE projects SET status = $2, max_priority = $3, resource_groups = $4::text[],
    requests_per_minute = $5, tokens_per_minute = $6, concurrent_requests = $7, reuse = $9
WHERE name = $1 AND ($8::bigint[] IS NULL OR version = ANY ($8)) RETURNING name
