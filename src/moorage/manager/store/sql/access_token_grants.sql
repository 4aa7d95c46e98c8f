-- Access tokens to apps of live sessions. An expired token stays for one more day, so that proxies can report it.
SELECT p.sha256, p.session_id, p.app, p.expires_at
FROM access_tokens p JOIN sessions s ON s.id = p.session_id
WHERE p.revoked_at IS NULL AND p.expires_at > now() - interval '1 day'
  AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY p.sha256
