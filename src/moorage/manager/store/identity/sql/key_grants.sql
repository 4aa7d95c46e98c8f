-- The secrets of valid keys, including the previous ones after a rotation.
SELECT s.sha256, s.until AS expires_at, coalesce(k.granted_role, k.role) AS role, k.owner,
       k.project, k.scopes, k.models, u.platform_role, m.role AS member_role, k.id, k.max_priority,
       p.max_priority AS project_priority, k.requests_per_minute, k.tokens_per_minute,
       k.concurrent_requests, k.max_body_bytes,
       coalesce((SELECT extract(epoch FROM max(b.resets_at))::bigint
                 FROM budgets b
                 WHERE b.level = 'hard' AND b.resets_at > now()
                 AND b.name = CASE b.scope WHEN 'project' THEN k.project WHEN 'user' THEN k.owner
                                   ELSE k.name END),
             0) AS exhausted_until,
       coalesce((SELECT extract(epoch FROM max(b.resets_at))::bigint
                 FROM budgets b
                 WHERE b.level = 'soft' AND b.resets_at > now()
                 AND b.name = CASE b.scope WHEN 'project' THEN k.project WHEN 'user' THEN k.owner
                                   ELSE k.name END),
             0) AS warned_until,
       -- Keys whose use the proxies can limit, under the names that limit_shares_read.sql uses.
       (SELECT jsonb_agg(jsonb_build_array(
                             concat_ws('/', 'budget', b.scope, b.period, b.unit, b.name),
                             b.unit, b.hard)
                         ORDER BY b.scope, b.period, b.unit)
        FROM budgets b
        WHERE b.hard IS NOT NULL AND b.unit IN ('requests', 'tokens', 'tokens_in', 'tokens_out')
          AND b.name = CASE b.scope WHEN 'project' THEN k.project WHEN 'user' THEN k.owner
                            ELSE k.name END) AS budgets
FROM api_keys k
JOIN users u ON u.name = k.owner AND u.status = 'active'
JOIN projects p ON p.name = k.project AND p.status = 'active'
LEFT JOIN memberships m ON m.user_name = k.owner AND m.project = k.project
CROSS JOIN LATERAL (VALUES (k.sha256, k.expires_at),
                        (k.previous_sha256, least(k.expires_at, k.previous_until))) s(sha256, until)
WHERE k.revoked_at IS NULL AND s.sha256 IS NOT NULL AND (s.until IS NULL OR s.until > now())
ORDER BY s.sha256
