-- What the creation of a session needs to know of its resource group: of kind hpc, what it says
-- about its site (`hpc`), whether equal sessions are reused, and ceilings of the priority. Groups
-- that say nothing are left out. And of its project whether equal sessions are reused.
SELECT name, false AS project,
       CASE WHEN jsonb_typeof(options -> 'hpc') = 'object' THEN options -> 'hpc' END AS hpc,
       options ->> 'reuse' AS reuse, nullif(options -> 'max_priority', 'null') AS max_priority
FROM resource_groups
WHERE jsonb_typeof(options -> 'hpc') = 'object' OR options ->> 'reuse' <> 'never'
  OR jsonb_typeof(options -> 'max_priority') = 'object'
UNION ALL SELECT name, true, NULL, reuse, NULL FROM projects WHERE reuse IS NOT NULL
