-- Pipelines of projects $1 (NULL: all). $2: only those with a session that has not ended.
SELECT * FROM pipelines
WHERE ($1::text[] IS NULL OR project = ANY ($1::text[]))
  AND (NOT $2::boolean OR id IN (
      SELECT p.pipeline_id FROM sessions s JOIN pipeline_steps p ON p.session_id = s.id
      WHERE s.status NOT IN (:TERMINAL)))
