-- The peers among these ($1) that are not revoked.
SELECT id FROM link_peers WHERE id = ANY($1::uuid[]) AND revoked_at IS NULL
