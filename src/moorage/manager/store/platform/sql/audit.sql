-- name: audit_begin
INSERT INTO audit_log (actor, user_name, project, from_address, request_id, action, resource, name,
                       before)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id

-- name: audit_finish
-- Complete entry $1. One that is complete stays as it is.
UPDATE audit_log
SET status = $2, code = $3, after = $4, name = CASE WHEN name = '' THEN $5 ELSE name END
WHERE id = $1 AND status IS NULL
