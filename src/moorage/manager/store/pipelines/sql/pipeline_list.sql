-- Pipelines of projects $1 (NULL: all).
SELECT * FROM pipelines WHERE $1::text[] IS NULL OR project = ANY ($1::text[])
