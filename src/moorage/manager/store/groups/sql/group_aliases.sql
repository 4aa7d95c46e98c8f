-- Former names of resource groups, with their current names.
SELECT name, renamed_to FROM resource_groups WHERE renamed_to IS NOT NULL
