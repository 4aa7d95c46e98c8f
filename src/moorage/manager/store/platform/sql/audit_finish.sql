-- Complete entry $1. One that is complete stays as it is.
UPDATE audit_log
SET status = $2, code = $3, after = $4, name = CASE WHEN name = '' THEN $5 ELSE name END
WHERE id = $1 AND status IS NULL
