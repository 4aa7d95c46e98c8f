-- The endpoints with live replicas on these agents ($1; index kernels_live_by_agent).
SELECT DISTINCT s.endpoint_id AS id FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE k.agent_id = ANY ($1::text[]) AND k.status NOT IN ('PENDING', :TERMINAL)
  AND s.endpoint_id IS NOT NULL
