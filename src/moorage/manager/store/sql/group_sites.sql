-- What the creation of a session needs to know of its resource group: of kind hpc, what it says about its site (`hpc`), and
-- whether equal sessions are reused. Groups that say neither are left out.
SELECT name, CASE WHEN jsonb_typeof(options -> 'hpc') = 'object' THEN options -> 'hpc' END AS hpc, options ->> 'reuse' AS reuse
FROM resource_groups WHERE jsonb_typeof(options -> 'hpc') = 'object' OR options ->> 'reuse' <> 'never'
