-- The live sessions of a project, a user or a key ($1, its name $2) that are not replicas and use
-- the unit $3: all of them, but for gpu only those with devices.
SELECT s.id FROM sessions s
WHERE s.status NOT IN ('TERMINATING', :TERMINAL) AND s.endpoint_id IS NULL
  AND CASE $1::text WHEN 'project' THEN s.project WHEN 'user' THEN s.owner ELSE s.created_by END
    = CASE $1 WHEN 'key' THEN 'key:' || $2 ELSE $2::text END
  AND ($3 <> 'gpu'
       OR jsonb_path_exists(s.slots, '$.keyvalue() ? (@.key like_regex "[.]" && @.value > 0)'))
