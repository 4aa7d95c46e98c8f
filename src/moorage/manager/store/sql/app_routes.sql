-- Service ports that proxies may relay to: those of main kernels of running sessions.
SELECT k.session_id, p.name, p.protocol, p.base_path, p.host, p.port, CASE WHEN p.guarded THEN k.secret ELSE '' END AS key,
       s.owner AS "user", s.project
FROM service_ports p JOIN kernels k ON k.id = p.kernel_id
JOIN sessions s ON s.id = k.session_id AND s.attempt = k.attempt
WHERE s.status = 'RUNNING' AND k.status = 'RUNNING' AND k.hostname = 'main1'
ORDER BY k.session_id, p.name, p.port
