-- Trust only the CA $1 (fingerprint $2) from $3 on, once every peer uses a certificate that it
-- issued, or if forced ($4).
UPDATE link_authority SET retiring_certificate = NULL, rotated_at = $3
WHERE certificate = $1 AND retiring_certificate IS NOT NULL AND ($4 OR NOT EXISTS (
    SELECT FROM link_peers
    WHERE revoked_at IS NULL AND certificate_until > $3 AND issuer IS DISTINCT FROM $2))
RETURNING name
