-- Count traffic of running interactive and system sessions ($1).
INSERT INTO session_traffic AS t (session_id, sightings, at)
SELECT id, 1, now()
FROM sessions
WHERE id = ANY ($1::uuid[]) AND type IN (:ATTENDED) AND status = 'RUNNING' ORDER BY id
ON CONFLICT (session_id) DO UPDATE SET sightings = t.sightings + 1, at = now()
