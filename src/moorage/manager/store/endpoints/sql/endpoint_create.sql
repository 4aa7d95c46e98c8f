-- Nothing is created if a live endpoint has that name, the name belongs to another project
-- (`reserved`; trigger endpoints_take_name), one of the groups ($6) does not exist (`group_known`),
-- or the idempotency key ($12, $13) was used before (`repeated`). A trigger adds the first
-- revision.
WITH repeated AS (
    SELECT endpoint_id, request_digest
    FROM endpoint_idempotency_keys
    WHERE scope = $12 AND key = $13
), created AS (
    INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, project, shared_with,
                           isolated, serving, user_labels)
    SELECT $1::uuid, $2, $3::jsonb, $4, $5, $7, $8, $9::text[], $10, $11::jsonb, $15::jsonb
    WHERE NOT EXISTS (SELECT FROM unnest($6::text[]) g
                      WHERE g NOT IN (SELECT name FROM resource_groups WHERE retired_at IS NULL))
      AND NOT EXISTS (SELECT FROM repeated)
    ON CONFLICT DO NOTHING RETURNING id
), key_added AS (
    INSERT INTO endpoint_idempotency_keys (scope, key, request_digest, endpoint_id)
    SELECT $12, $13, $14, id FROM created WHERE $13 IS NOT NULL
)
SELECT (SELECT id FROM created) AS id, (SELECT id FROM created) IS NOT NULL AS created,
       NOT EXISTS (SELECT FROM unnest($6::text[]) g
                   WHERE g NOT IN (SELECT name
                                   FROM resource_groups
                                   WHERE retired_at IS NULL)) AS group_known,
       EXISTS (SELECT FROM model_names
               WHERE name = ANY ($2::text || adapter_names($2, $11::jsonb))
                 AND project <> $8) AS reserved,
       (SELECT endpoint_id FROM repeated) AS repeated,
       (SELECT request_digest FROM repeated) AS request_digest
