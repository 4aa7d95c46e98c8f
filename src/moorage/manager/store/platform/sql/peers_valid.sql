-- The peers among these ($1) that are not revoked, with the keys that they may not use, and when
-- they were renewed.
SELECT id, retired_keys, renewed_from, renewed_at
FROM link_peers
WHERE id = ANY($1::uuid[]) AND revoked_at IS NULL
