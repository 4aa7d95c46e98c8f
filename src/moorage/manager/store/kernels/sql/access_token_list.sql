-- Access tokens to an app that are neither revoked nor expired.
SELECT id, session_id, app, prefix, created_at, created_by, expires_at FROM access_tokens
WHERE session_id = $1::uuid AND app = $2 AND revoked_at IS NULL AND expires_at > now()
  AND EXISTS (SELECT FROM sessions s
              WHERE s.id = session_id AND ($3::text[] IS NULL OR s.project = ANY ($3))
                AND ($4::text IS NULL OR s.owner = $4))
