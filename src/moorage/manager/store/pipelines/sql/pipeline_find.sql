-- The pipeline with an id ($1) or a name ($2; the newest) that the caller may see: of projects $3
-- (NULL: all), the caller's own ($4) first.
SELECT *, EXISTS (SELECT FROM session_stops t WHERE t.pipeline_id = pipelines.id) AS stopping
FROM pipelines
WHERE (id = $1::uuid OR name = $2) AND ($3::text[] IS NULL OR project = ANY ($3::text[]))
ORDER BY (id = $1::uuid) IS TRUE DESC, (project = $4) DESC, created_at DESC LIMIT 1
