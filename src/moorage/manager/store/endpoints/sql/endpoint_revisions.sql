-- The revisions of an endpoint ($1).
SELECT revision, spec, created_at, created_by, completed_at, failed_at, reason, detail
FROM endpoint_revisions WHERE endpoint_id = $1::uuid
