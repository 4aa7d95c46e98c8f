-- The kernels that should run on these agents (index kernels_live_by_agent, whose predicate is the second condition on
-- the status). agent_orders.sql returns their specs.
SELECT agent_id, id FROM kernels
WHERE agent_id = ANY ($1::text[]) AND status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'RUNNING')
  AND status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY id
