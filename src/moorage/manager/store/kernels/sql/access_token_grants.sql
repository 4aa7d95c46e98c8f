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
