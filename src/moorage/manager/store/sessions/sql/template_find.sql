-- A version of a template ($3; NULL: the latest) of a project; if it has none of that name, of all
-- projects.
SELECT * FROM templates
WHERE name = $2 AND deleted_at IS NULL AND ($3::int IS NULL OR version = $3)
    AND project = (SELECT max(project)
                   FROM templates
                   WHERE project IN ($1, '') AND name = $2 AND deleted_at IS NULL)
ORDER BY version DESC LIMIT 1
