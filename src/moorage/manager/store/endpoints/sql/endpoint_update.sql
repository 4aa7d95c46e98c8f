-- Change an endpoint ($1), unless it has changed since it was read (its version $2) or the
-- idempotency key ($10, $11) was used before (`repeated`). A different template ($6) creates a new
-- revision, which becomes the target; NULL keeps the revision. If the endpoint had been given up, a
-- change revives it: replicas that failed before are no longer counted (they are older than
-- changed_at). An endpoint that someone other than an administrator has changed runs isolated
-- ($13). If $14, a percentage, is not 0, a new revision is a canary alongside the previous one, if
-- that was complete; otherwise there is no canary. $15: its groups. $16: its labels.
WITH repeated AS (
    SELECT endpoint_id, request_digest
    FROM endpoint_idempotency_keys
    WHERE scope = $10 AND key = $11
), changed AS (
    UPDATE endpoints e
    SET spec = $3::jsonb, serving = $4::jsonb, replicas = $5, shared_with = $7::text[],
        user_labels = $16::jsonb, revision = e.revision + 1, changed_at = now(),
        isolated = e.isolated OR $13,
        target_revision = CASE WHEN $6::jsonb IS NULL THEN e.target_revision ELSE $8 END,
        canary_of = CASE WHEN $14 = 0 THEN NULL
                         WHEN $6::jsonb IS NULL OR e.canary_of IS NOT NULL THEN e.canary_of
                         ELSE (SELECT r.revision FROM endpoint_revisions r
                               WHERE r.endpoint_id = e.id AND r.revision = e.target_revision
                                 AND r.completed_at IS NOT NULL) END
    WHERE e.id = $1::uuid AND e.revision = $2 AND e.deleted_at IS NULL
      AND NOT EXISTS (SELECT FROM repeated)
      AND NOT EXISTS (SELECT FROM unnest($15::text[]) g
                      WHERE g NOT IN (SELECT name FROM resource_groups))
    RETURNING e.id
), revised AS (
    INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by)
    SELECT id, $8, $6::jsonb, $9 FROM changed WHERE $6::jsonb IS NOT NULL
), key_added AS (
    INSERT INTO endpoint_idempotency_keys (scope, key, request_digest, endpoint_id)
    SELECT $10, $11, $12, id FROM changed WHERE $11 IS NOT NULL
)
SELECT EXISTS (SELECT FROM changed) AS changed, (SELECT endpoint_id FROM repeated) AS repeated,
       (SELECT request_digest FROM repeated) AS request_digest,
       NOT EXISTS (SELECT FROM unnest($15::text[]) g
                   WHERE g NOT IN (SELECT name FROM resource_groups)) AS group_known,
       (SELECT min(m.name)
        FROM endpoints e JOIN model_names m ON m.name = ANY (adapter_names(e.name, $4::jsonb))
        WHERE e.id = $1::uuid AND m.project <> e.project) AS reserved
