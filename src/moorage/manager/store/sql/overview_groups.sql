-- Resource groups with their agents by status.
SELECT g.name, a.status, count(a.id) AS n
FROM resource_groups g LEFT JOIN agents a ON a.resource_group = g.name AND a.incarnation <> ''
GROUP BY 1, 2
