-- Resource groups with their agents by status.
SELECT g.name, a.status, count(a.id) AS n
FROM resource_groups g LEFT JOIN agents a ON a.resource_group = g.name AND a.incarnation <> ''
WHERE g.renamed_to IS NULL
GROUP BY 1, 2
