-- The agents of a group ($1) for a snapshot, each with its slots in parallel arrays.
-- include: agent_states
WHERE a.resource_group = $1
ORDER BY a.id
