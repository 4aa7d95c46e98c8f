-- The sessions with live kernels on LOST agents, among the agents $1. They are to be reconciled,
-- because their kernels are unreachable.
SELECT DISTINCT k.session_id FROM agents a JOIN kernels k ON k.agent_id = a.id
WHERE a.id = ANY ($1::text[]) AND a.status = 'LOST' AND k.status NOT IN ('PENDING', :TERMINAL)
