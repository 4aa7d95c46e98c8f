-- Store the CA of the links ($1 certificate, $2 sealed key) unless another manager did so first. Returns the stored CA.
WITH created AS (
    INSERT INTO link_authority (name, certificate, key) VALUES ('links', $1, $2)
    ON CONFLICT (name) DO NOTHING
    RETURNING certificate, key
)
SELECT certificate, key FROM created UNION ALL SELECT certificate, key FROM link_authority
