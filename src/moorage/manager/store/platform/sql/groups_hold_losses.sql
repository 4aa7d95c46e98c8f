-- Record in which groups ($1) silent agents do not become LOST, because too many are silent at the
-- same time ($2: the leader's term). Returns the groups that changed.
UPDATE resource_groups g SET losses_held_since = CASE WHEN g.name = ANY ($1::text[]) THEN now() END
WHERE (g.losses_held_since IS NOT NULL) <> (g.name = ANY ($1::text[]))
  AND EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $2 AND expires_at > now())
RETURNING g.name, g.losses_held_since IS NOT NULL AS held
