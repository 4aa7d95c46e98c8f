-- Projects among $1 that do not exist or are archived.
SELECT w.name
FROM unnest($1::text[]) AS w (name)
WHERE NOT EXISTS (SELECT FROM projects p WHERE p.name = w.name AND p.archived_at IS NULL)
