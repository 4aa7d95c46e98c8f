SELECT kind, name, resource_group,
       ARRAY(SELECT g.name
             FROM resource_groups g WHERE g.renamed_to = resource_group) AS group_aliases,
       public_key, renewed_from, retired_keys, trusted_authorities, issuer
FROM link_peers WHERE id = $1 AND revoked_at IS NULL
