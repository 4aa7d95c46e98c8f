-- Record why sessions were not placed. Writes only rows that look different to a reader. `retries`
-- counts holds for lack of capacity; `bypassed` counts how often the session was overtaken while it
-- was first in the queue. Writes nothing if $6 is no longer the leader's term. Locks in the order
-- of the ids, as session_transition.sql does: otherwise one of the two would be the victim of a
-- deadlock.
WITH input AS (
    SELECT *
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::int[])
        AS i(id, revision, hold, counts, bypassed)
), locked AS (
    SELECT i.* FROM sessions s JOIN input i ON s.id = i.id
    WHERE s.status = 'PENDING' AND s.revision = i.revision
      AND ($6::bigint IS NULL
           OR EXISTS (SELECT FROM leases
                      WHERE name = 'leader' AND term = $6 AND expires_at > now()))
      AND (s.hold IS NULL OR s.hold - 'at' - 'attempts' <> i.hold::jsonb - 'at' - 'attempts'
           OR (i.counts > 0 AND s.retries < 1000)
           OR s.bypassed < i.bypassed)
    ORDER BY s.id FOR UPDATE OF s
)
UPDATE sessions s
SET hold = i.hold::jsonb, retries = s.retries + i.counts,
    bypassed = greatest(s.bypassed, i.bypassed)
FROM locked i WHERE s.id = i.id AND s.status = 'PENDING' AND s.revision = i.revision
