-- Latest versions of a project's templates, and of shared templates for whose names it has none;
-- or, with $2, all versions of one template.
SELECT * FROM (
    SELECT DISTINCT ON (name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END) * FROM templates t
    WHERE project = (SELECT max(project)
                     FROM templates
                     WHERE project IN ($1, '') AND name = t.name AND deleted_at IS NULL)
        AND deleted_at IS NULL AND ($2::text IS NULL OR name = $2)
    ORDER BY name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END, version DESC) t
