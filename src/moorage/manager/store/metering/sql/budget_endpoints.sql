-- The endpoints that a project, a user or a key ($1, its name $2) pays for.
SELECT e.id FROM endpoints e
WHERE e.deleted_at IS NULL
  AND CASE $1::text WHEN 'project' THEN e.project WHEN 'user' THEN e.owner ELSE e.created_by END
    = CASE $1 WHEN 'key' THEN 'key:' || $2 ELSE $2::text END
