-- The endpoints of a project ($1) whose routes contain the secret $2: the key of a provider.
SELECT id FROM endpoints WHERE project = $1 AND deleted_at IS NULL AND serving ? 'routing'
  AND jsonb_path_exists(serving, '$.routing.fallbacks[*] ? (@.secret == $name)',
                        jsonb_build_object('name', $2::text))
