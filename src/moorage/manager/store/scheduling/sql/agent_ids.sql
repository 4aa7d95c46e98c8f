-- The ids of a group's agents.
SELECT id FROM agents WHERE resource_group = $1
