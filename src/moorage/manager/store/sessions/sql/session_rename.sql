-- Rename a session ($1) of these projects ($3) to $2. Replicas are not renamed, nor are sessions
-- whose name is used in requests for a model. The unique index sessions_live_name refuses the name
-- of another live session of the project.
UPDATE sessions
SET name = $2,
    spec = CASE WHEN spec ? 'name' THEN jsonb_set(spec, '{name}', to_jsonb($2::text)) ELSE spec END
WHERE id = $1::uuid AND ($3::text[] IS NULL OR project = ANY ($3)) AND type <> 'inference'
  AND removed_at IS NULL
RETURNING id
