-- No row: a key of that name exists and is not revoked (index one_live_key_per_name), or the user
-- is not a member of the project ($9: an administrator creates the key together with its user,
-- project and membership; trigger api_keys_owner).
INSERT INTO api_keys (id, name, role, granted_role, prefix, sha256, owner, project, expires_at,
                      created_by, scopes, models, resource_groups, max_priority,
                      requests_per_minute, tokens_per_minute, concurrent_requests, max_body_bytes,
                      max_time_s, max_per_session)
SELECT $1, $2, CASE WHEN $3::text = 'admin' THEN 'admin' ELSE 'member' END, $3, $4, $5, $6, $7, $8,
       $10, $11::text[], $12::text[], $13::text[], $14, $15, $16, $17, $18,
       $19, $20
WHERE $9 OR EXISTS (SELECT FROM memberships WHERE user_name = $6 AND project = $7)
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id, name, prefix, coalesce(granted_role, role) AS role, owner AS "user", project, scopes,
          models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
          concurrent_requests, max_body_bytes, max_time_s, max_per_session, created_at,
          created_by, expires_at, last_used_at, previous_until, version
