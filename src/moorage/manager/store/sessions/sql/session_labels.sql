-- Set the labels $2 of a session ($1) of these projects ($5) and remove the labels $3, unless that
-- results in more than $4 labels.
UPDATE sessions SET user_labels = (user_labels || $2::jsonb) - $3::text[]
WHERE id = $1::uuid AND ($5::text[] IS NULL OR project = ANY ($5))
  AND (SELECT count(*) FROM jsonb_object_keys(as_object((user_labels || $2::jsonb) - $3::text[])))
      <= $4
RETURNING id
