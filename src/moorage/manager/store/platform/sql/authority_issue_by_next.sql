-- Issue certificates with the next CA ($1, fingerprint $2) from $3 on, once every peer trusts it,
-- or if forced ($4). Existing join tokens contain the previous CA's fingerprint, so nobody can join
-- with them any longer.
WITH switched AS (
    UPDATE link_authority
    SET certificate = next_certificate, key = next_key, retiring_certificate = certificate,
        next_certificate = NULL, next_key = NULL, rotated_at = $3
    WHERE next_certificate = $1 AND ($4 OR NOT EXISTS (
        SELECT FROM link_peers
        WHERE revoked_at IS NULL AND certificate_until > $3 AND $2 <> ALL (trusted_authorities)))
    RETURNING name
), withdrawn AS (
    UPDATE join_tokens SET removed_at = now(), removed_by = 'ca-rotation' FROM switched
    WHERE removed_at IS NULL
)
SELECT name FROM switched
