-- Of these members, those that are members still.
SELECT id FROM link_peers WHERE id = ANY($1::uuid[]) AND revoked_at IS NULL
