-- The agents of a group, by name only.
SELECT id FROM agents WHERE resource_group = $1
