-- No row: a live endpoint has that name already, or (group_known) the group is unknown.
WITH made AS (
    INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, project)
    SELECT $1::uuid, $2, $3::jsonb, $4, $5, $7, $8 WHERE EXISTS (SELECT FROM resource_groups WHERE name = $6)
    ON CONFLICT DO NOTHING RETURNING id
)
SELECT (SELECT id FROM made) IS NOT NULL AS made, EXISTS (SELECT FROM resource_groups WHERE name = $6) AS group_known
