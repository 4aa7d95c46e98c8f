SELECT kind, name, resource_group, public_key, renewed_from, retired_keys, trusted_authorities, issuer
FROM link_peers WHERE id = $1 AND revoked_at IS NULL
