UPDATE access_tokens SET revoked_at = now(), revoked_by = $4
WHERE session_id = $1::uuid AND app = $2 AND id = $3::uuid AND revoked_at IS NULL
  AND EXISTS (SELECT FROM sessions s
              WHERE s.id = session_id AND ($5::text[] IS NULL OR s.project = ANY ($5))
                AND ($6::text IS NULL OR s.owner = $6))
RETURNING id, session_id, app, prefix, created_at, created_by, expires_at
