-- name: template_list
-- Latest versions of a project's templates, and of shared templates for whose names it has none;
-- or, with $2, all versions of one template.
SELECT * FROM (
    SELECT DISTINCT ON (name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END) * FROM templates t
    WHERE project = (SELECT max(project)
                     FROM templates
                     WHERE project IN ($1, '') AND name = t.name AND deleted_at IS NULL)
        AND deleted_at IS NULL AND ($2::text IS NULL OR name = $2)
    ORDER BY name, CASE WHEN $2::text IS NULL THEN 0 ELSE version END, version DESC) t

-- name: template_find
-- A version of a template ($3; NULL: the latest) of a project or, if the project has none of that
-- name, of all projects.
SELECT * FROM templates
WHERE name = $2 AND deleted_at IS NULL AND ($3::int IS NULL OR version = $3)
    AND project = (SELECT max(project)
                   FROM templates
                   WHERE project IN ($1, '') AND name = $2 AND deleted_at IS NULL)
ORDER BY version DESC LIMIT 1

-- name: template_delete
-- Delete all versions of a template. Their numbers are not used again.
UPDATE templates SET deleted_at = now()
WHERE project = $1 AND name = $2 AND deleted_at IS NULL RETURNING *
