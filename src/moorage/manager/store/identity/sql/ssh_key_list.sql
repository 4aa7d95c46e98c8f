-- SSH keys, or the one with this name or fingerprint ($1): all, or those of a user ($3) and, for
-- callers that see everyone's keys in projects ($2), those that were registered with them ($4).
SELECT s.id, s.name, s.user_name AS "user", s.fingerprint, s.public_key, k.name AS key, k.project,
       s.created_at, s.created_by, s.last_used_at, s.proved
FROM user_ssh_keys s LEFT JOIN api_keys k ON k.id = s.key_id
WHERE ($1::text IS NULL OR s.fingerprint = $1 OR (s.name = $1 AND s.user_name = $3))
  AND (k.id IS NULL OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
  AND ($2::text[] IS NULL OR s.user_name = $3
       OR ($4::boolean AND k.project = ANY ($2)
           AND coalesce(k.granted_role, k.role) NOT IN ('auditor', 'admin')))
