-- Record that peer $1 has a certificate for the public key $2 until $3, which it requested with the
-- key $4 at $5. That key stays valid until the peer connects with the new one, because the response
-- may be lost.
UPDATE link_peers SET public_key = $2, certificate_until = $3, renewed_from = $4, renewed_at = $5
WHERE id = $1 AND revoked_at IS NULL AND $4 <> ALL (retired_keys)
RETURNING kind, name
