-- Every model that clients may request: endpoints, ready or not, and running inference sessions without an endpoint.
SELECT e.name AS model, e.created_at, 0 AS rank, t.session_id, t.kernel_id, t.host, t.port, t.secret, t.engine
FROM endpoints e
LEFT JOIN LATERAL (
    SELECT s.id AS session_id, k.id AS kernel_id, k.host, k.port, k.secret, s.spec ->> 'engine' AS engine
    FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
    WHERE s.endpoint_id = e.id AND s.status = 'RUNNING' AND k.status = 'RUNNING' AND k.port > 0
      AND k.hostname = 'main1') t ON true
WHERE e.deleted_at IS NULL
UNION ALL
SELECT s.name, s.created_at, 1, s.id, k.id, k.host, k.port, k.secret, s.spec ->> 'engine'
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
WHERE s.endpoint_id IS NULL AND s.type = 'inference' AND s.status = 'RUNNING' AND k.status = 'RUNNING'
  AND k.port > 0 AND k.hostname = 'main1'
ORDER BY 3, 1, 5
