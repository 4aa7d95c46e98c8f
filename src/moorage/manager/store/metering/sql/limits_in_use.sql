-- Limits of keys, projects and models that have any, with their use by the proxies in the last
-- minute, as far as reported in the last seconds. Only limits of the projects $1 (NULL: all) are
-- included, and among the keys only those of the user $2 (NULL: everyone's).
WITH limited AS (
    SELECT 'key' AS scope, k.name, k.project, 'key/' || k.id AS subject,
           k.requests_per_minute, k.tokens_per_minute, k.concurrent_requests
    FROM api_keys k
    WHERE k.revoked_at IS NULL AND ($2::text IS NULL OR k.owner = $2)
      AND ($1::text[] IS NULL
           OR (k.project = ANY ($1)
               AND coalesce(k.granted_role, k.role) NOT IN ('auditor', 'admin')))
    UNION ALL
    SELECT 'project', p.name, p.name, 'project/' || p.name, p.requests_per_minute,
           p.tokens_per_minute, p.concurrent_requests
    FROM projects p WHERE $1 IS NULL OR p.name = ANY ($1)
    UNION ALL
    SELECT 'model', e.name, e.project, 'model/' || e.name,
           as_integer(e.serving -> 'limits' -> 'requests_per_minute'),
           as_integer(e.serving -> 'limits' -> 'tokens_per_minute'),
           as_integer(e.serving -> 'limits' -> 'concurrent_requests')
    FROM endpoints e
    WHERE e.deleted_at IS NULL AND e.serving ? 'limits' AND ($1 IS NULL OR e.project = ANY ($1))
)
SELECT l.scope, l.name, l.project, l.requests_per_minute, l.tokens_per_minute,
       l.concurrent_requests, coalesce(u.requests, 0) AS requests, coalesce(u.tokens, 0) AS tokens,
       coalesce(u.concurrent, 0) AS concurrent
FROM limited l LEFT JOIN limit_shares s USING (subject)
LEFT JOIN LATERAL (
    SELECT sum(as_integer(v.value -> 'used' -> 0))::bigint AS requests,
           sum(as_integer(v.value -> 'used' -> 1))::bigint AS tokens,
           sum(as_integer(v.value -> 'used' -> 2))::bigint AS concurrent
    FROM jsonb_each(as_object(s.shares)) v
    WHERE as_number(v.value -> 'until') > extract(epoch FROM now())) u ON true
WHERE num_nonnulls(l.requests_per_minute, l.tokens_per_minute, l.concurrent_requests) > 0
ORDER BY l.scope, l.name
