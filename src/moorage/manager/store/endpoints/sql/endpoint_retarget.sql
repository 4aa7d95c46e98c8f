-- Return an endpoint ($1) from its target revision ($2) to an earlier one ($3), with the spec of
-- the latter. If $4 is set, only the leader of this term does so, because the target failed for the
-- reason $5 (in detail: $6). If a user rolls back, $4 is NULL, and the target is not marked as
-- failed.
WITH lease AS (
    SELECT term FROM leases WHERE name = 'leader' AND term = $4 AND expires_at > now() FOR SHARE
), earlier AS (
    SELECT r.spec FROM endpoint_revisions r WHERE r.endpoint_id = $1::uuid AND r.revision = $3
), changed AS (
    UPDATE endpoints e
    SET target_revision = $3, canary_of = NULL, revision = e.revision + 1, changed_at = now(),
        spec = (r.spec - '{max_lifetime_s,adapters}'::text[])
            || jsonb_build_object('name', e.name, 'replicas', e.spec -> 'replicas'),
        serving = (e.serving - '{max_lifetime_s,adapters}'::text[])
            || jsonb_strip_nulls(jsonb_build_object(
                'max_lifetime_s', r.spec -> 'max_lifetime_s', 'adapters', r.spec -> 'adapters'))
    FROM earlier r
    WHERE e.id = $1::uuid AND e.target_revision = $2 AND e.deleted_at IS NULL
      AND ($4::bigint IS NULL OR EXISTS (SELECT FROM lease))
    RETURNING e.id
), marked AS (
    UPDATE endpoint_revisions r SET failed_at = now(), reason = $5, detail = $6 FROM changed c
    WHERE r.endpoint_id = c.id AND r.revision = $2 AND $4::bigint IS NOT NULL
)
SELECT id FROM changed
