-- name: access_token_create
-- Create an access token to an app of a live session ($2), and delete that session's tokens that
-- expired a week ago. $10, $11: its creator, and the API key with which it was created, if any. No
-- row: the session has ended or does not exist.
WITH old AS (
    DELETE FROM access_tokens WHERE session_id = $2::uuid AND expires_at < now() - interval '7 days'
)
INSERT INTO access_tokens (id, session_id, app, prefix, sha256, created_by, expires_at, user_name,
                           key_id)
SELECT $1::uuid, s.id, $3, $4, $5, $6, now() + make_interval(secs => $7), $10, $11::uuid
FROM sessions s WHERE s.id = $2::uuid AND s.status NOT IN (:TERMINAL)
  AND ($8::text[] IS NULL OR s.project = ANY ($8)) AND ($9::text IS NULL OR s.owner = $9)
RETURNING id, session_id, app, prefix, created_at, created_by, expires_at

-- name: access_token_list
-- Access tokens to an app that are neither revoked nor expired.
SELECT id, session_id, app, prefix, created_at, created_by, expires_at FROM access_tokens
WHERE session_id = $1::uuid AND app = $2 AND revoked_at IS NULL AND expires_at > now()
  AND EXISTS (SELECT FROM sessions s
              WHERE s.id = session_id AND ($3::text[] IS NULL OR s.project = ANY ($3))
                AND ($4::text IS NULL OR s.owner = $4))

-- name: access_token_revoke
UPDATE access_tokens SET revoked_at = now(), revoked_by = $4
WHERE session_id = $1::uuid AND app = $2 AND id = $3::uuid AND revoked_at IS NULL
  AND EXISTS (SELECT FROM sessions s
              WHERE s.id = session_id AND ($5::text[] IS NULL OR s.project = ANY ($5))
                AND ($6::text IS NULL OR s.owner = $6))
RETURNING id, session_id, app, prefix, created_at, created_by, expires_at

-- name: access_token_grants
-- Access tokens to apps of live sessions, with what key_find.sql returns for their creators, and
-- the API key that they were made with, if any: a token ends with it. An expired token stays for
-- one more day, so that proxies can report it.
SELECT t.sha256, t.session_id, t.app, t.expires_at, t.user_name, s.owner AS "user", s.project,
       s.spec ->> 'runtime' AS runtime, s.isolated, coalesce(k.granted_role, k.role) AS role,
       k.scopes, u.platform_role, m.role AS member_role
FROM access_tokens t JOIN sessions s ON s.id = t.session_id
LEFT JOIN users u ON u.name = t.user_name AND u.status = 'active'
LEFT JOIN projects p ON p.name = s.project
LEFT JOIN memberships m ON m.user_name = u.name AND m.project = s.project
LEFT JOIN api_keys k ON k.id = t.key_id
WHERE t.revoked_at IS NULL AND t.expires_at > now() - interval '1 day'
  AND s.status NOT IN (:TERMINAL) AND coalesce(p.status, 'active') = 'active'
  AND (t.key_id IS NULL
       OR (k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())))
ORDER BY t.sha256
