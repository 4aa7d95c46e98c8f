-- Service ports of these sessions ($1) that proxies may relay to: those of main kernels of running sessions.
SELECT k.session_id, p.name, p.protocol, p.base_path, p.host, p.port, CASE WHEN p.guarded THEN k.secret ELSE '' END AS key,
       s.owner AS "user", s.project
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt JOIN service_ports p ON p.kernel_id = k.id
WHERE s.id = ANY ($1::uuid[]) AND s.status = 'RUNNING' AND k.status = 'RUNNING' AND k.hostname = 'main1'
ORDER BY k.session_id, p.name, p.port
