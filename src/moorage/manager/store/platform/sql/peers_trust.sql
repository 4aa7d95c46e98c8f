-- CAs that each peer trusts, for peers whose certificates are valid at $1.
SELECT kind, name, trusted_authorities, issuer FROM link_peers
WHERE revoked_at IS NULL AND certificate_until > $1 ORDER BY kind, name
