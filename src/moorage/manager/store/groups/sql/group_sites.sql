-- Facts about resource groups that are needed to create sessions: for kind hpc, the description of
-- its site (`hpc`); whether equal sessions are reused; and ceilings of the priority. Groups without
-- any of these are omitted. Also returns, by project, whether equal sessions are reused.
SELECT name, false AS project,
       CASE WHEN jsonb_typeof(options -> 'hpc') = 'object' THEN options -> 'hpc' END AS hpc,
       options ->> 'reuse' AS reuse, nullif(options -> 'max_priority', 'null') AS max_priority
FROM resource_groups
WHERE jsonb_typeof(options -> 'hpc') = 'object' OR options ->> 'reuse' <> 'never'
  OR jsonb_typeof(options -> 'max_priority') = 'object'
UNION ALL SELECT name, true, NULL, reuse, NULL FROM projects WHERE reuse IS NOT NULL
