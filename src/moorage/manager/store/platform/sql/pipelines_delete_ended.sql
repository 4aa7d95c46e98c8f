-- Delete up to $2 pipelines whose sessions all ended more than $1 seconds ago; their sessions are
-- deleted after that.
DELETE FROM pipelines WHERE id IN (
    SELECT id FROM pipelines WHERE created_at < now() - make_interval(secs => $1)
      AND NOT EXISTS (SELECT FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
                      WHERE p.pipeline_id = pipelines.id AND (s.status NOT IN (:TERMINAL)
                        OR s.status_since >= now() - make_interval(secs => $1)))
    ORDER BY created_at LIMIT $2)
RETURNING id
