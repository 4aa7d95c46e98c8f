SELECT kind, name, resource_group FROM link_members WHERE id = $1 AND revoked_at IS NULL
