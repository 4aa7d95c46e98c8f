-- Create sessions with their first kernel, the first row of their history, and the key under which each may be
-- asked for again; one row back per input. Nothing is made for a name that is live already (index
-- sessions_live_name), an unknown group or one that does not allow its type, or a key that was used before (`seen`). Of
-- two that use a key at the same moment, the primary key of idempotency_keys refuses the statement of one, which then
-- finds the other's.
--
-- This is the short form: it makes nothing at all where waiting sessions are counted (`limited`). That, and
-- dependencies and clusters, are for session_create_checked.sql, which takes Postgres several times as long to plan.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::uuid[],
        $9::text[], $10::float8[], $11::uuid[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::text[], $18::timestamptz[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, scope, key, asked, owner, project, starts_at, n)
), seen AS (
    SELECT i.n FROM input i JOIN idempotency_keys k ON k.scope = i.scope AND k.key = i.key
), limits AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM quotas WHERE pending IS NOT NULL) AS there
), made AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, endpoint_id,
                          created_by, deadline_at, owner, project, starts_at)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec::jsonb, i.slots::jsonb,
           i.endpoint_id, i.created_by, greatest(now(), i.starts_at) + make_interval(secs => i.pending_s),
           i.owner, i.project, i.starts_at
    FROM input i JOIN resource_groups g ON g.name = i.resource_group
    WHERE i.n NOT IN (SELECT n FROM seen) AND NOT (SELECT there FROM limits)
      AND (jsonb_typeof(g.options -> 'session_types') IS DISTINCT FROM 'array' OR g.options -> 'session_types' ? i.type)
    ORDER BY i.n
    ON CONFLICT DO NOTHING
    RETURNING id, created_at, deadline_at
), kerneled AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT i.kernel_id, i.id, 1, 'PENDING', i.secret FROM input i JOIN made USING (id)
), noted AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT i.id, 1, 'created', NULL, 'PENDING', i.created_by FROM input i JOIN made USING (id)
), keyed AS (
    INSERT INTO idempotency_keys (scope, key, asked, session_id)
    SELECT i.scope, i.key, i.asked, i.id FROM input i JOIN made USING (id) WHERE i.key IS NOT NULL
)
SELECT made.created_at, made.deadline_at, g.name IS NOT NULL AS group_known, s.n IS NOT NULL AS seen,
       (SELECT there FROM limits) AS limited, NULL AS wrong_why, NULL AS crowded_scope,
       CASE WHEN jsonb_typeof(g.options -> 'session_types') = 'array' AND NOT g.options -> 'session_types' ? i.type
            THEN ARRAY(SELECT jsonb_array_elements_text(g.options -> 'session_types')) END AS types_allowed
FROM input i LEFT JOIN made USING (id) LEFT JOIN resource_groups g ON g.name = i.resource_group
LEFT JOIN seen s USING (n)
ORDER BY i.n
