-- Like session_create.sql, for features that only some sessions need: dependencies, sub kernels of
-- clusters with their SSH keys, quotas on pending sessions, and, for sessions that the leader
-- creates, its term ($31).
--
-- Create sessions, each with its kernels, its dependencies, its first history entry and its
-- idempotency key. One row per input. A session that shares the run of another ($37) depends on
-- that one. In addition to the cases of session_create.sql, nothing is created for an invalid
-- dependency (`invalid`), when a quota on pending sessions is exhausted (`over_quota`) or their
-- number per user in the resource group (`over_limit`), or for a former leader (`led_by_other`).
--
-- A dependency must exist before the session and never changes, so there can be no cycle. A name
-- refers to a session of the session's own project; the id of a session in another project is
-- rejected. Pending sessions are counted up to the limit by lock_pending_quotas (waiting_now in
-- migration 0011), one statement at a time; sessions of this statement count as well.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[],
        $8::uuid[], $9::text[], $10::float8[], $11::uuid[], $12::text[], $13::text[], $14::text[],
        $15::text[], $16::text[], $17::text[], $18::timestamptz[], $32::boolean[], $33::int[],
        $34::text[], $35::text[], $36::text[], $37::uuid[], $38::text[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, scope, key, request_digest,
                         owner, project, starts_at, isolated, endpoint_revision, template,
                         user_labels, request_hash, adopted_from, traceparent, n)
), repeated AS (
    SELECT i.n FROM input i JOIN idempotency_keys k ON k.scope = i.scope AND k.key = i.key
), lease AS (
    SELECT term FROM leases
    WHERE name = 'leader' AND term = ANY ($31::bigint[]) AND expires_at > now() FOR SHARE
), led_by_other AS (
    SELECT t.n FROM unnest($31::bigint[]) WITH ORDINALITY AS t(term, n)
    WHERE t.term IS NOT NULL AND t.term NOT IN (SELECT term FROM lease)
), named AS (
    SELECT d.n, d.at, d.condition, s.id, s.type, s.project
    FROM unnest($19::int[], $20::int[], $21::text[], $22::uuid[], $23::text[])
        AS d(n, at, ref, as_id, condition)
    JOIN input i USING (n) LEFT JOIN LATERAL (
        SELECT id, type, project
        FROM sessions
        WHERE id = d.as_id OR (name = d.ref AND project = i.project)
        ORDER BY (id = d.as_id) IS TRUE DESC, (status IN (:TERMINAL)), created_at DESC LIMIT 1) s
    ON true
), invalid AS (
    SELECT DISTINCT ON (d.n) d.n, d.at,
           CASE WHEN d.id IS NULL THEN 'unknown' WHEN d.project <> i.project THEN 'foreign'
                ELSE 'no-result' END AS why, d.project
    FROM named d JOIN input i USING (n)
    WHERE d.id IS NULL OR d.project <> i.project OR (d.condition = 'success' AND d.type <> 'batch')
    ORDER BY d.n, d.at
), counted AS (
    SELECT i.n, v.scope, v.name FROM input i
    CROSS JOIN LATERAL (VALUES ('user', i.owner), ('project', i.project),
                            ('group', i.resource_group)) v(scope, name)
    WHERE i.n NOT IN (SELECT n FROM repeated)
), over_quota AS (
    SELECT DISTINCT ON (i.n) i.n, i.scope, i.name, i.pending
    FROM (SELECT c.n, w.*, row_number() OVER (PARTITION BY w.scope, w.name ORDER BY c.n) AS nth
          FROM counted c
          JOIN lock_pending_quotas((SELECT array_agg(scope) FROM counted),
                                   (SELECT array_agg(name) FROM counted)) w
          USING (scope, name)) i
    WHERE i.there + i.nth > i.pending
    ORDER BY i.n, i.scope DESC
), limited AS ( -- only those within their quotas, so that these are locked first
    SELECT i.n, i.resource_group, i.owner FROM input i
    WHERE i.n NOT IN (SELECT n FROM repeated) AND i.n NOT IN (SELECT n FROM over_quota)
      AND i.type <> 'system'
), over_limit AS (
    SELECT i.n, i.name, i.owner, i.pending
    FROM (SELECT c.n, w.*, row_number() OVER (PARTITION BY w.name, w.owner ORDER BY c.n) AS nth
          FROM limited c
          JOIN lock_pending_limits((SELECT array_agg(resource_group) FROM limited),
                                   (SELECT array_agg(owner) FROM limited)) w
          ON w.given = c.resource_group AND w.owner = c.owner) i
    WHERE i.there + i.nth > i.pending
), created AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots,
                          endpoint_id, created_by, deadline_at, owner, project, starts_at,
                          dependencies, isolated, endpoint_revision, template, user_labels,
                          request_hash, adopted_from, traceparent)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec::jsonb,
           i.slots::jsonb, i.endpoint_id, i.created_by,
           greatest(now(), i.starts_at) + make_interval(secs => i.pending_s), i.owner, i.project,
           i.starts_at, (SELECT count(*) FROM named d WHERE d.n = i.n), i.isolated,
           i.endpoint_revision, i.template, i.user_labels::jsonb, i.request_hash, i.adopted_from,
           i.traceparent
    FROM input i JOIN resource_groups g ON g.name = i.resource_group
    WHERE i.n NOT IN (SELECT n FROM repeated) AND i.n NOT IN (SELECT n FROM invalid)
      AND i.n NOT IN (SELECT n FROM over_quota) AND i.n NOT IN (SELECT n FROM over_limit)
      AND i.n NOT IN (SELECT n FROM led_by_other)
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
), subs_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret, hostname, cluster_role,
                         cluster_index)
    SELECT u.id, i.id, 1, 'PENDING', u.secret, 'sub' || u.index, 'sub', u.index
    FROM unnest($24::int[], $25::int[], $26::uuid[], $27::text[]) AS u(n, index, id, secret)
    JOIN input i USING (n) JOIN created ON created.id = i.id
), ssh_keys_added AS (
    INSERT INTO session_keys (session_id, private_key, public_key)
    SELECT i.id, y.private_key, y.public_key
    FROM unnest($28::int[], $29::text[], $30::text[]) AS y(n, private_key, public_key)
    JOIN input i USING (n) JOIN created ON created.id = i.id
), dependencies_added AS (
    INSERT INTO session_dependencies (session_id, depends_on, condition)
    SELECT DISTINCT i.id, d.id, d.condition
    FROM named d JOIN input i USING (n) JOIN created ON created.id = i.id
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT i.id, 1, 'created', NULL, 'PENDING', i.created_by FROM input i JOIN created USING (id)
), keys_added AS (
    INSERT INTO idempotency_keys (scope, key, request_digest, session_id)
    SELECT i.scope, i.key, i.request_digest, i.id
    FROM input i JOIN created USING (id)
    WHERE i.key IS NOT NULL
)
SELECT created.created_at, created.deadline_at, i.adopted_from,
       o.status AS shared_status, o.result AS shared_result, o.reason AS shared_reason,
       o.detail AS shared_detail, o.status_since AS shared_status_since,
       g.name IS NOT NULL AND (i.endpoint_id IS NOT NULL OR
-- include: group_admits
       ) AS group_known, r.n IS NOT NULL AS repeated,
       EXISTS (SELECT FROM quotas WHERE pending IS NOT NULL)
       OR EXISTS (SELECT FROM group_limits WHERE max_pending_per_user IS NOT NULL)
           AS has_pending_quotas,
       w.at AS invalid_at, w.why AS invalid_why, w.project AS invalid_project,
       EXISTS (SELECT FROM led_by_other o WHERE o.n = i.n) AS led_by_other, c.scope AS quota_scope,
       c.name AS quota_name, c.pending AS quota_limit,
       p.name AS limit_group, p.owner AS limit_user, p.pending AS limit_pending,
       CASE WHEN NOT
-- include: group_allows_type
            THEN
-- include: group_types
       END AS types_allowed
FROM input i LEFT JOIN created USING (id) LEFT JOIN resource_groups g ON g.name = i.resource_group
LEFT JOIN sessions o ON o.id = i.adopted_from
LEFT JOIN repeated r USING (n) LEFT JOIN invalid w USING (n) LEFT JOIN over_quota c USING (n)
LEFT JOIN over_limit p USING (n)
ORDER BY i.n
