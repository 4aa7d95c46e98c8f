-- The latest versions of a project's templates and of those for all, or with $2 all versions of one, the newest first.
SELECT * FROM (
    SELECT DISTINCT ON (name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END) * FROM templates
    WHERE project IN ($1, '') AND deleted_at IS NULL AND ($2::text IS NULL OR name = $2)
    ORDER BY name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END, project DESC, version DESC) t
