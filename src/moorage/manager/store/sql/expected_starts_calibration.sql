-- How far expected starts were off, in seconds either way: median and 90th percentile of the $3 latest of each resource group
-- ($1; NULL: all) and kind ($2) that came to a start (index expected_starts_started).
SELECT g.name AS resource_group, k.kind, count(*) AS starts,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latest.error) AS p50,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY latest.error) AS p90
FROM resource_groups g CROSS JOIN unnest($2::text[]) AS k(kind), LATERAL (
    SELECT abs(extract(epoch FROM e.started_at - e.expected_at))::float8 AS error FROM expected_starts e
    WHERE e.outcome = 'started' AND e.resource_group = g.name AND e.kind = k.kind
    ORDER BY e.told_at DESC LIMIT $3) latest
WHERE g.renamed_to IS NULL AND ($1::text IS NULL OR g.name = $1)
GROUP BY 1, 2 ORDER BY 1, 2
