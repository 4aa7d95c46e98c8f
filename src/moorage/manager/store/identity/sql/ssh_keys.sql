-- name: ssh_key_create
-- A key that anyone registered without a proof is replaced. No row: the key is registered with a
-- proof. Raises a unique violation if the user has another key with this name.
INSERT INTO user_ssh_keys
    AS s (id, user_name, name, key_id, fingerprint, public_key, created_by, proved)
VALUES ($1, $2, $3, $4, $5, $6, $7, true)
ON CONFLICT (fingerprint) DO UPDATE
SET id = excluded.id, user_name = excluded.user_name, name = excluded.name,
    key_id = excluded.key_id, created_by = excluded.created_by, created_at = now(),
    last_used_at = NULL, proved = true
WHERE NOT s.proved
RETURNING id

-- name: ssh_key_list
-- SSH keys, or only the one with the name or fingerprint $1: either all, or those of a user ($3)
-- and, for callers that see everyone's API keys in projects ($2), those that were registered with
-- these API keys ($4).
SELECT s.id, s.name, s.user_name AS "user", s.fingerprint, s.public_key, k.name AS key, k.project,
       s.created_at, s.created_by, s.last_used_at, s.proved
FROM user_ssh_keys s LEFT JOIN api_keys k ON k.id = s.key_id
WHERE ($1::text IS NULL OR s.fingerprint = $1 OR (s.name = $1 AND s.user_name = $3))
  AND (k.id IS NULL OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
  AND ($2::text[] IS NULL OR s.user_name = $3
       OR ($4::boolean AND k.project = ANY ($2)
           AND coalesce(k.granted_role, k.role) NOT IN ('auditor', 'admin')))

-- name: ssh_key_find
-- The SSH key with fingerprint $1 for project $2, with the columns of key_find.sql for the API key
-- that registered it, if any: an API key acts only in its own project. `use_unrecorded`:
-- last_used_at is more than a minute old.
SELECT s.id, s.name, k.name AS key_name, coalesce(k.granted_role, k.role) AS role,
       s.user_name AS owner, p.name AS project, k.scopes, k.models, k.resource_groups,
       k.max_priority, k.kept_priority, k.max_time_s, k.max_per_session, u.platform_role,
       m.role AS member_role, p.max_priority AS project_priority,
       p.resource_groups AS project_groups,
       s.last_used_at IS NULL OR s.last_used_at < now() - interval '1 minute' AS use_unrecorded
FROM user_ssh_keys s
JOIN users u ON u.name = s.user_name AND u.status = 'active'
LEFT JOIN api_keys k ON k.id = s.key_id
JOIN projects p ON p.name = coalesce(k.project, $2) AND p.status = 'active'
LEFT JOIN memberships m ON m.user_name = s.user_name AND m.project = p.name
WHERE s.fingerprint = $1 AND (s.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))

-- name: ssh_key_projects
-- The user of the SSH key with fingerprint $1, and the active projects for which ssh_key_find
-- finds it.
SELECT s.user_name AS owner, s.name, ARRAY(
    SELECT p.name FROM projects p
    LEFT JOIN memberships m ON m.project = p.name AND m.user_name = s.user_name
    WHERE p.status = 'active'
      AND CASE WHEN coalesce(k.granted_role, k.role) IN ('viewer', 'member', 'project-admin')
               THEN p.name = k.project
               ELSE m.role IS NOT NULL OR u.platform_role IS NOT NULL END
    ORDER BY p.name) AS projects
FROM user_ssh_keys s
JOIN users u ON u.name = s.user_name AND u.status = 'active'
LEFT JOIN api_keys k ON k.id = s.key_id
WHERE s.fingerprint = $1
  AND (s.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))

-- name: ssh_key_touch
UPDATE user_ssh_keys SET last_used_at = now() WHERE id = $1 RETURNING id

-- name: ssh_key_delete
DELETE FROM user_ssh_keys WHERE id = $1 RETURNING id
