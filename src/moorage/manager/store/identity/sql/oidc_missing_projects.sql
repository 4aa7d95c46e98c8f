-- Projects among $1 that do not exist.
SELECT w.name
FROM unnest($1::text[]) AS w (name)
WHERE NOT EXISTS (SELECT FROM projects p WHERE p.name = w.name)
