SELECT id, kind, name, resource_group, joined_at, certificate_until, token_id AS token
FROM link_peers WHERE revoked_at IS NULL ORDER BY kind, name
