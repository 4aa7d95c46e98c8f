-- Content of an event about these agents ($1), including forgotten ones.
SELECT id, resource_group, status, cordon, draining, ready, incarnation = '' AS gone
FROM agents WHERE id = ANY ($1::text[])
