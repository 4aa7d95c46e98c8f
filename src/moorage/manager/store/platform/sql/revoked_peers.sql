-- Revoked peers of kind $1 whose certificates are valid, or were until recently: a connection may
-- outlast its certificate.
SELECT id::text FROM link_peers
WHERE kind = $1 AND revoked_at IS NOT NULL
  AND greatest(certificate_until, revoked_at) > now() - interval '1 day'
ORDER BY id
