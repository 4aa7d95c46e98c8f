UPDATE access_tokens SET revoked_at = now(), revoked_by = $4
WHERE session_id = $1::uuid AND app = $2 AND id = $3::uuid AND revoked_at IS NULL
RETURNING id, session_id, app, prefix, created_at, created_by, expires_at
