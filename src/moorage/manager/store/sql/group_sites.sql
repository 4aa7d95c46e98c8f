-- What the creation of a session needs to know of its resource group: of kind hpc, what it says about its site (`hpc`), and
-- whether equal sessions are reused. Groups that say neither are left out. And the same of its project.
SELECT name, false AS project, CASE WHEN jsonb_typeof(options -> 'hpc') = 'object' THEN options -> 'hpc' END AS hpc,
       options ->> 'reuse' AS reuse
FROM resource_groups WHERE jsonb_typeof(options -> 'hpc') = 'object' OR options ->> 'reuse' <> 'never'
UNION ALL SELECT name, true, NULL, reuse FROM projects WHERE reuse IS NOT NULL
