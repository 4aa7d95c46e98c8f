-- Why sessions were not placed. Written only where it says something new; `retries` counts capacity refusals.
UPDATE sessions s SET hold = i.hold::jsonb, retries = s.retries + i.counts
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[]) AS i(id, revision, hold, counts)
WHERE s.id = i.id AND s.status = 'PENDING' AND s.revision = i.revision
  AND (s.hold IS NULL OR s.hold - 'at' - 'attempts' <> i.hold::jsonb - 'at' - 'attempts' OR (i.counts > 0 AND s.retries < 1000))
