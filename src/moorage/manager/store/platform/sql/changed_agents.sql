-- What an event says about these agents ($1), also those that were forgotten.
SELECT id, resource_group, status, cordon, draining, ready, incarnation = '' AS gone
FROM agents WHERE id = ANY ($1::text[])
