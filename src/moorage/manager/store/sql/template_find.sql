-- A version of a template ($3; NULL: the latest) of a project, else of all projects.
SELECT * FROM templates
WHERE project IN ($1, '') AND name = $2 AND deleted_at IS NULL AND ($3::int IS NULL OR version = $3)
ORDER BY project DESC, version DESC LIMIT 1
