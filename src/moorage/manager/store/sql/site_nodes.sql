-- Nodes of the sites of resource group $1, as its live agents have heard of late. Several agents may serve one site.
SELECT DISTINCT n.name, n.used, n.total FROM agents a, jsonb_to_recordset(a.site_nodes) AS n(name text, used int, total int)
WHERE a.resource_group = $1 AND a.status = 'ALIVE' AND a.site_nodes <> '[]' ORDER BY 1, 2, 3
