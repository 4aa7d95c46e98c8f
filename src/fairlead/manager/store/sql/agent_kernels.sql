-- The live kernels of an agent (index kernels_live_by_agent).
SELECT id, session_id, status FROM kernels
WHERE agent_id = $1 AND status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
