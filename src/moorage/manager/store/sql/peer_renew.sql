UPDATE link_peers SET public_key = $2, certificate_until = $3
WHERE id = $1 AND revoked_at IS NULL
RETURNING kind, name
