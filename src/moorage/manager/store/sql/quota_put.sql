-- Replace a quota. No row: its resource group does not exist.
INSERT INTO quotas (scope, name, slots, sessions, pending, changed_by)
SELECT $1, $2, $3::jsonb, $4::int, $5::int, $6
WHERE $1 <> 'group' OR EXISTS (SELECT FROM resource_groups WHERE name = $2)
ON CONFLICT (scope, name) DO UPDATE SET slots = excluded.slots, sessions = excluded.sessions,
    pending = excluded.pending, changed_at = now(), changed_by = excluded.changed_by
RETURNING name
