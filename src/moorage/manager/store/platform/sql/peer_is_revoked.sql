-- Whether $1 is a peer that was revoked, and not one that is unknown, as after the restore of a
-- backup.
SELECT EXISTS (SELECT FROM link_peers WHERE id = $1 AND revoked_at IS NOT NULL) AS revoked
