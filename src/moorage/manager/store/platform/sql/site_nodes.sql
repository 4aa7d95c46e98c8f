-- Nodes of the sites of resource group $1, as its live agents last reported. Several agents may
-- serve one site.
SELECT DISTINCT n.name, n.used, n.total FROM agents a, LATERAL (
    SELECT o ->> 'name' AS name, as_integer(o -> 'used') AS used, as_integer(o -> 'total') AS total
    FROM jsonb_array_elements(as_array(a.site_nodes)) o) n
WHERE a.resource_group = $1 AND a.status = 'ALIVE' AND a.site_nodes <> '[]'
  AND num_nulls(n.name, n.used, n.total) = 0
ORDER BY 1, 2, 3
