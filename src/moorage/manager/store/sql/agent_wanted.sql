-- Which kernels should exist on these agents (index kernels_live_by_agent). What each is: agent_orders.sql.
SELECT agent_id, id FROM kernels
WHERE agent_id = ANY ($1::text[]) AND status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING')
  AND status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY id
