-- Create sessions with their first kernel and the first row of their history; one row back per input.
-- A name that is live already makes nothing (index sessions_live_name); an unknown group makes nothing.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::jsonb[], $7::jsonb[], $8::uuid[],
        $9::text[], $10::float8[], $11::uuid[], $12::text[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, n)
), made AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, endpoint_id,
                          created_by, deadline_at)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec, i.slots, i.endpoint_id,
           i.created_by, now() + make_interval(secs => i.pending_s)
    FROM input i JOIN resource_groups g ON g.name = i.resource_group
    ORDER BY i.n
    ON CONFLICT DO NOTHING
    RETURNING id
), kerneled AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT i.kernel_id, i.id, 1, 'PENDING', i.secret FROM input i JOIN made USING (id)
), noted AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT i.id, 1, 'created', NULL, 'PENDING', i.created_by FROM input i JOIN made USING (id)
)
SELECT i.id, made.id IS NOT NULL AS made, g.name IS NOT NULL AS group_known
FROM input i LEFT JOIN made USING (id) LEFT JOIN resource_groups g ON g.name = i.resource_group
ORDER BY i.n
