SELECT g.name, g.options FROM resource_groups g
WHERE EXISTS (SELECT FROM sessions s WHERE s.status = 'PENDING' AND s.resource_group = g.name)
ORDER BY g.name
