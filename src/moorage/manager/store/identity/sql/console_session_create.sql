-- Open a console session $1 with secret $2 (its SHA-256) of user $3, or of the owner of key $4, for
-- at most $6 seconds, and $7 seconds without activity; $5: the client's address; $8: opened at the
-- OpenID provider. It acts in the key's project or, without a key, in the user's first project. No
-- row: the user is not active, or has no project and no role on the platform. Sessions that ended a
-- week ago are deleted.
WITH old AS (
    DELETE FROM console_sessions WHERE expires_at < now() - interval '7 days'
)
INSERT INTO console_sessions (id, sha256, user_name, key_id, from_address, expires_at, idle_s,
                              by_oidc, project)
SELECT $1, $2, u.name, $4::uuid, $5, now() + make_interval(secs => $6::float8), $7::int, $8,
       coalesce((SELECT k.project FROM api_keys k WHERE k.id = $4::uuid), m.project, 'default')
FROM users u
LEFT JOIN LATERAL (SELECT s.project
                   FROM memberships s JOIN projects p ON p.name = s.project AND p.status = 'active'
                   WHERE s.user_name = u.name
                   ORDER BY s.project <> 'default', s.project
                   LIMIT 1) m ON true
WHERE u.name = $3 AND u.status = 'active'
  AND (m.project IS NOT NULL OR u.platform_role IS NOT NULL OR $4::uuid IS NOT NULL)
RETURNING project
