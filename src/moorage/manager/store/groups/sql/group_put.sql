-- Create group $1, or replace its options with $2. $3: the versions that it may have now (NULL
-- allows any, or none). $4: the actor. $5: only create, or restore a retired group. No row: the
-- group has another version, exists although it must not, does not exist although it must, or is
-- retired.
INSERT INTO resource_groups AS g (name, options, changed_by)
SELECT $1, $2, $4 WHERE $3::bigint[] IS NULL OR EXISTS (SELECT FROM resource_groups WHERE name = $1)
ON CONFLICT (name)
DO UPDATE SET options = excluded.options, version = g.version + 1, retired_at = NULL,
changed_at = now(), changed_by = excluded.changed_by
WHERE ($3::bigint[] IS NULL OR g.version = ANY ($3)) AND (g.retired_at IS NOT NULL) = $5
  AND g.renamed_to IS NULL
RETURNING version
