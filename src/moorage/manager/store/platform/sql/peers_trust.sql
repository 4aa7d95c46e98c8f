-- CAs that each peer with a valid certificate at $1 trusts.
SELECT kind, name, trusted_authorities, issuer FROM link_peers
WHERE revoked_at IS NULL AND certificate_until > $1 ORDER BY kind, name
