-- Permits to apps of live sessions. One that has expired is told for a day more, so that proxies can say so.
SELECT p.sha256, p.session_id, p.app, p.expires_at
FROM permits p JOIN sessions s ON s.id = p.session_id
WHERE p.revoked_at IS NULL AND p.expires_at > now() - interval '1 day'
  AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY p.sha256
