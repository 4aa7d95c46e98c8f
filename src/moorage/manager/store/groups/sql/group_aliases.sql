-- Former names of resource groups, with the names of today.
SELECT name, renamed_to FROM resource_groups WHERE renamed_to IS NOT NULL
