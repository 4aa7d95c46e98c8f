-- Of these projects ($1): all, or the one named $2.
SELECT p.id, p.name, p.status, p.max_priority, p.resource_groups, p.requests_per_minute,
       p.tokens_per_minute, p.concurrent_requests, p.reuse, p.version, p.created_at, p.created_by,
       (SELECT count(*) FROM memberships m WHERE m.project = p.name) AS members
FROM projects p
WHERE ($1::text[] IS NULL OR p.name = ANY ($1)) AND ($2::text IS NULL OR p.name = $2)
