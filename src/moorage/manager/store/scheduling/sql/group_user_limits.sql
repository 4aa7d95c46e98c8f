-- What sessions of one user may hold at once in resource group $1, if that is limited.
SELECT resource_group AS name, max_per_user, max_running_per_user
FROM group_limits
WHERE resource_group = $1 AND (max_per_user <> '{}' OR max_running_per_user IS NOT NULL)
