-- Add a version of a template, unless its latest version is the same: then that one is returned.
-- $6: the versions that the latest may be (NULL: any, or none). No row: the latest version is a
-- different one. The body is stored as its original text, in a JSON string, because jsonb would
-- lose the order of its keys, and the body is shown in that order. That order does not matter when
-- two versions are compared. $7: its sessions run isolated. If an administrator saves somebody
-- else's template again, the sessions of the new version do not.
WITH latest AS (
    SELECT * FROM templates WHERE project = $1 AND name = $2 ORDER BY version DESC LIMIT 1
), expected AS (
    SELECT
    WHERE $6::bigint[] IS NULL
      OR EXISTS (SELECT FROM latest WHERE version = ANY ($6) AND deleted_at IS NULL)
), same AS (
    SELECT latest.*
    FROM latest, expected
    WHERE as_document(body) = as_document($3::jsonb) AND bases = $4::text[] AND deleted_at IS NULL
        AND isolated <= $7::boolean
), added AS (
    INSERT INTO templates (project, name, version, body, bases, created_by, isolated)
    SELECT $1, $2, coalesce((SELECT version FROM latest), 0) + 1, $3::jsonb, $4, $5, $7
    FROM expected
    WHERE NOT EXISTS (SELECT FROM same)
    RETURNING *
)
SELECT * FROM added UNION ALL SELECT * FROM same
