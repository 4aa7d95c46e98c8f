-- Peer $1, with its newest key $2, trusts the CAs $3 and uses a certificate of the CA $4.
UPDATE link_peers SET trusted_authorities = $3, issuer = $4
WHERE id = $1 AND public_key = $2 AND revoked_at IS NULL
RETURNING id
