-- Create sessions, each with its main kernel, its first history entry and its idempotency key. One
-- row per input. Nothing is created for the name of a live session (index sessions_live_name), for
-- an unknown group, for a group that does not allow the type, or for a key that was used before
-- (`repeated`). If two requests use a key at the same time, the primary key of idempotency_keys
-- rejects one statement, and its caller then finds the other's session.
--
-- This is the short form. It creates nothing at all if quotas or resource groups limit pending
-- sessions (`has_pending_quotas`). Those, dependencies and clusters are left to
-- session_create_checked.sql, which takes Postgres several times as long to plan.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[],
        $8::uuid[], $9::text[], $10::float8[], $11::uuid[], $12::text[], $13::text[], $14::text[],
        $15::text[], $16::text[], $17::text[], $18::timestamptz[], $19::boolean[], $20::text[],
        $21::text[], $22::text[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, scope, key, request_digest,
                         owner, project, starts_at, isolated, template, user_labels, traceparent, n)
), repeated AS (
    SELECT i.n FROM input i JOIN idempotency_keys k ON k.scope = i.scope AND k.key = i.key
), quotas_found AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM quotas WHERE pending IS NOT NULL)
           OR EXISTS (SELECT FROM group_limits WHERE max_pending_per_user IS NOT NULL) AS present
), created AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots,
                          endpoint_id, created_by, deadline_at, owner, project, starts_at, isolated,
                          template, user_labels, traceparent)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec::jsonb,
           i.slots::jsonb, i.endpoint_id, i.created_by,
           greatest(now(), i.starts_at) + make_interval(secs => i.pending_s), i.owner, i.project,
           i.starts_at, i.isolated, i.template, i.user_labels::jsonb,
           i.traceparent
    FROM input i JOIN resource_groups g ON g.name = i.resource_group
    WHERE i.n NOT IN (SELECT n FROM repeated) AND NOT (SELECT present FROM quotas_found)
      AND
-- include: group_allows_type
      -- Admitting an endpoint also admits its replicas.
      AND (i.endpoint_id IS NOT NULL OR
-- include: group_admits
      )
    ORDER BY i.n
    ON CONFLICT DO NOTHING
    RETURNING id, created_at, deadline_at
), kernels_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT i.kernel_id, i.id, 1, 'PENDING', i.secret FROM input i JOIN created USING (id)
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT i.id, 1, 'created', NULL, 'PENDING', i.created_by FROM input i JOIN created USING (id)
), keys_added AS (
    INSERT INTO idempotency_keys (scope, key, request_digest, session_id)
    SELECT i.scope, i.key, i.request_digest, i.id
    FROM input i JOIN created USING (id)
    WHERE i.key IS NOT NULL
)
SELECT created.created_at, created.deadline_at, NULL::uuid AS adopted_from,
       g.name IS NOT NULL AND (i.endpoint_id IS NOT NULL OR
-- include: group_admits
              ) AS group_known, r.n IS NOT NULL AS repeated,
       (SELECT present FROM quotas_found) AS has_pending_quotas, NULL AS invalid_why,
       NULL AS quota_scope, NULL AS limit_group, false AS led_by_other,
       CASE WHEN NOT
-- include: group_allows_type
            THEN
-- include: group_types
       END AS types_allowed
FROM input i LEFT JOIN created USING (id) LEFT JOIN resource_groups g ON g.name = i.resource_group
LEFT JOIN repeated r USING (n)
ORDER BY i.n
