-- Not created: a live endpoint has that name, the name belongs to another project (`reserved`; trigger endpoints_take_name), or the group does not exist (`group_known`).
WITH created AS (
    INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, project, shared_with, isolated)
    SELECT $1::uuid, $2, $3::jsonb, $4, $5, $7, $8, $9::text[], $10 WHERE EXISTS (SELECT FROM resource_groups WHERE name = $6)
    ON CONFLICT DO NOTHING RETURNING id
)
SELECT (SELECT id FROM created) AS id, (SELECT id FROM created) IS NOT NULL AS created,
       EXISTS (SELECT FROM resource_groups WHERE name = $6) AS group_known,
       EXISTS (SELECT FROM model_names WHERE name = $2 AND project <> $8) AS reserved
