SELECT id, kind, name, resource_group, joined_at, certificate_until, token_id AS token
FROM link_members WHERE revoked_at IS NULL ORDER BY kind, name
