-- Facts about resource groups that are needed to create sessions: for kind hpc, the description of
-- its site (`hpc`); whether equal sessions are reused; ceilings of the priority; and limits. Groups
-- without any of these are omitted. Also returns, by project, whether equal sessions are reused.
SELECT g.name, false AS project,
       CASE WHEN jsonb_typeof(g.options -> 'hpc') = 'object' THEN g.options -> 'hpc' END AS hpc,
       g.options ->> 'reuse' AS reuse, nullif(g.options -> 'max_priority', 'null') AS max_priority,
       CASE WHEN l.resource_group IS NOT NULL THEN
-- include: group_limits
       END AS limits
FROM resource_groups g
LEFT JOIN group_limits l ON l.resource_group = coalesce(g.renamed_to, g.name)
WHERE jsonb_typeof(g.options -> 'hpc') = 'object' OR g.options ->> 'reuse' <> 'never'
  OR jsonb_typeof(g.options -> 'max_priority') = 'object' OR l.resource_group IS NOT NULL
UNION ALL SELECT name, true, NULL, reuse, NULL, NULL FROM projects WHERE reuse IS NOT NULL
