-- Create sessions with their first kernel, the first row of their history, and the key under which each may be
-- asked for again; one row back per input. Nothing is made for a name that is live already (index
-- sessions_live_name), an unknown group, or a key that was used before (`seen`). Of two that use a key at the
-- same moment, the primary key of idempotency_keys refuses the statement of one, which then finds the other's.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::uuid[],
        $9::text[], $10::float8[], $11::uuid[], $12::text[], $13::text[], $14::text[], $15::text[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, scope, key, asked, n)
), seen AS (
    SELECT i.n FROM input i JOIN idempotency_keys k ON k.scope = i.scope AND k.key = i.key
), made AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, endpoint_id,
                          created_by, deadline_at)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec::jsonb, i.slots::jsonb,
           i.endpoint_id, i.created_by, now() + make_interval(secs => i.pending_s)
    FROM input i JOIN resource_groups g ON g.name = i.resource_group
    WHERE i.n NOT IN (SELECT n FROM seen)
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
SELECT made.created_at, made.deadline_at, g.name IS NOT NULL AS group_known
FROM input i LEFT JOIN made USING (id) LEFT JOIN resource_groups g ON g.name = i.resource_group
ORDER BY i.n
