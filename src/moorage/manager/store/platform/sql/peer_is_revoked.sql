-- Whether $1 is a revoked peer rather than an unknown one, for example after a backup was restored.
SELECT EXISTS (SELECT FROM link_peers WHERE id = $1 AND revoked_at IS NOT NULL) AS revoked
