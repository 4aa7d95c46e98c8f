-- Service ports of these sessions ($1) that proxies may relay to: those of main kernels of running
-- sessions.
SELECT k.session_id, p.name, p.protocol, p.base_path, p.host, p.port,
       CASE WHEN p.guarded THEN k.secret ELSE '' END AS key, s.owner AS "user", s.project,
       s.spec ->> 'runtime' AS runtime, s.isolated, coalesce(i.criterion, '') AS idle_criterion,
       coalesce(a.id::text, '') AS peer_id,
       -- The value is measured every few seconds; it is rounded so that the routes do not change
       -- with every measurement.
       coalesce(round(extract(epoch FROM i.at
                                  + i.ends_in_s * interval '1 second') / 10)::bigint * 10,
                0) AS idle_ends_at
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
JOIN service_ports p ON p.kernel_id = k.id
LEFT JOIN LATERAL (
    SELECT p.id FROM link_peers p
    WHERE p.kind = 'agent' AND p.name = k.agent_id AND p.revoked_at IS NULL LIMIT 1
) a ON true
LEFT JOIN session_idle i ON i.session_id = s.id AND i.attempt = s.attempt AND i.warned_s IS NOT NULL
  AND i.ends_in_s IS NOT NULL
WHERE s.id = ANY ($1::uuid[]) AND s.status = 'RUNNING' AND k.status = 'RUNNING'
  AND k.hostname = 'main1'
  AND (a.id IS NOT NULL
       OR NOT EXISTS (SELECT FROM link_peers r WHERE r.kind = 'agent' AND r.name = k.agent_id))
ORDER BY k.session_id, p.name, p.port
