SELECT kind, name, resource_group FROM link_peers WHERE id = $1 AND revoked_at IS NULL
