-- Access tokens to an app that are neither revoked nor expired.
SELECT id, session_id, app, prefix, created_at, created_by, expires_at FROM access_tokens
WHERE session_id = $1::uuid AND app = $2 AND revoked_at IS NULL AND expires_at > now() ORDER BY created_at, id
