-- Like agent_states.sql, for these agents ($1) of any group: the agents of a snapshot that may have
-- changed.
-- include: agent_states
WHERE a.id = ANY ($1::text[])
ORDER BY a.id
