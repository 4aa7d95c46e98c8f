-- The CA of the links ($1, $2: certificate and sealed key), unless another manager has made one: then that one.
WITH made AS (
    INSERT INTO link_authority (name, certificate, key) VALUES ('links', $1, $2)
    ON CONFLICT (name) DO NOTHING
    RETURNING certificate, key
)
SELECT certificate, key FROM made UNION ALL SELECT certificate, key FROM link_authority
