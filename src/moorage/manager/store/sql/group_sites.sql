-- The resource groups of kind hpc, with what they say about their site.
SELECT name, options -> 'hpc' AS hpc FROM resource_groups WHERE jsonb_typeof(options -> 'hpc') = 'object'
