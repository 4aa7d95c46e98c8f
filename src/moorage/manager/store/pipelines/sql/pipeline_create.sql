-- Create sessions of a pipeline, all or none: with their kernels, dependencies and history, and the
-- pipeline ($30 id, $31 name, $32 specification) unless a retry adds them to it. The ids are
-- already known, so a dependency ($19 session, $20 the one that it depends on, $21 condition) may
-- name a session of this statement; the caller has checked that there is no cycle. The statement
-- fails if a name is taken or a concurrent retry has already run a step.
--
-- The first session holds the idempotency key of the pipeline. The statement fails if the key was
-- already used.
--
-- `problem`: why nothing was created: `group` or `type` of input `n`, a quota, a limit of a
-- resource group (on user `scope`), or `stale`: a session that a retry keeps ($42) is no longer
-- pending. Pending dependents of sessions that run again ($33 earlier session, $34 its new run)
-- wait for the new run. All elements of an array with a limit ($47) wait for their turns, which
-- admit_elements then gives; so do the pending elements that a retry of others keeps.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[],
        $8::uuid[], $9::text[], $10::float8[], $11::uuid[], $12::text[], $13::text[], $14::text[],
        $15::text[], $16::text[], $17::text[], $18::timestamptz[], $22::int[], $23::boolean[],
        $24::text[], $25::text[], $26::text[], $27::int[], $28::int[], $29::int[], $43::text[],
        $44::text[], $45::uuid[], $46::text[], $47::int[])
    WITH ORDINALITY AS i(id, name, type, resource_group, priority, spec, slots, endpoint_id,
                         created_by, pending_s, kernel_id, secret, scope, key, request_digest,
                         owner, project, starts_at, dependencies, isolated, template, user_labels,
                         step, index, run, position, files, request_hash, adopted_from, traceparent,
                         at_once, n)
), groups AS (
    SELECT i.resource_group, i.type, i.owner, i.project, min(i.n) AS n
    FROM input i GROUP BY 1, 2, 3, 4
), problem AS (
    SELECT q.n, CASE WHEN q.is_admitted THEN 'type' ELSE 'group' END AS problem,
           NULL::text AS scope, NULL::text AS name, NULL::bigint AS allowed, NULL::bigint AS there
    FROM (SELECT i.n, g.name IS NOT NULL AND
-- include: group_admits
          AS is_admitted,
-- include: group_allows_type
          AS is_allowed
          FROM groups i LEFT JOIN resource_groups g ON g.name = i.resource_group) q
    WHERE NOT (q.is_admitted AND q.is_allowed)
), counted AS (
    SELECT v.scope, v.name, count(*) AS more FROM input i
    CROSS JOIN LATERAL (VALUES ('user', i.owner), ('project', i.project),
                            ('group', i.resource_group)) v(scope, name)
    GROUP BY 1, 2
), over_quota AS (
    SELECT 1::bigint AS n, 'quota' AS problem, w.scope, w.name, w.pending::bigint AS allowed,
           w.there::bigint AS there
    FROM lock_pending_quotas((SELECT array_agg(scope) FROM counted),
                             (SELECT array_agg(name) FROM counted)) w
    JOIN counted c USING (scope, name) WHERE w.there + c.more > w.pending
), limited AS ( -- only if the quotas suffice, so that these are locked first
    SELECT i.resource_group, i.owner, count(*) AS more FROM input i
    WHERE NOT EXISTS (SELECT FROM over_quota) AND i.type <> 'system' GROUP BY 1, 2
), over_limit AS (
    SELECT 1::bigint AS n, 'limit' AS problem, w.owner AS scope, w.name,
           w.pending::bigint AS allowed, min(w.there)::bigint AS there
    FROM lock_pending_limits((SELECT array_agg(resource_group) FROM limited),
                             (SELECT array_agg(owner) FROM limited)) w
    JOIN limited c ON c.resource_group = w.given AND c.owner = w.owner
    GROUP BY w.owner, w.name, w.pending HAVING min(w.there) + sum(c.more) > w.pending
), kept AS MATERIALIZED ( -- locked, so that none is skipped or begins before this is written
    SELECT s.id FROM sessions s
    WHERE s.id = ANY ($42::uuid[]) AND s.status = 'PENDING' ORDER BY s.id FOR UPDATE
), stale AS (
    SELECT 1::bigint AS n, 'stale' AS problem, NULL::text AS scope, NULL::text AS name,
           NULL::bigint AS allowed, NULL::bigint AS there
    WHERE (SELECT count(*) FROM kept) < cardinality($42::uuid[])
), refused AS (
    SELECT * FROM problem UNION ALL SELECT * FROM over_quota UNION ALL SELECT * FROM over_limit
    UNION ALL SELECT * FROM stale
), pipeline AS (
    INSERT INTO pipelines (id, name, project, owner, spec, created_by, deadline_at)
    SELECT $30::uuid, $31::text, i.project, i.owner, $32::text::jsonb, i.created_by,
           now() + make_interval(secs => as_number($32::text::jsonb -> 'timeout_s')::float8)
    FROM input i
    -- A retry starts the time of the pipeline again.
    WHERE i.n = 1 AND NOT EXISTS (SELECT FROM refused)
    ON CONFLICT (id) DO UPDATE SET deadline_at = excluded.deadline_at
    RETURNING created_at, deadline_at
), created AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots,
                          endpoint_id, created_by, deadline_at, owner, project, starts_at,
                          dependencies, isolated, template, user_labels, files, request_hash,
                          adopted_from, traceparent)
    SELECT i.id, i.name, i.type, 'PENDING', i.resource_group, i.priority, i.spec::jsonb,
           i.slots::jsonb, i.endpoint_id, i.created_by,
           greatest(now(), i.starts_at) + make_interval(secs => i.pending_s), i.owner, i.project,
           i.starts_at, i.dependencies, i.isolated, i.template, i.user_labels::jsonb,
           i.files::jsonb, i.request_hash, i.adopted_from, i.traceparent
    FROM input i WHERE NOT EXISTS (SELECT FROM refused) ORDER BY i.n
    RETURNING 1
), kernels_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT i.kernel_id, i.id, 1, 'PENDING', i.secret
    FROM input i
    WHERE NOT EXISTS (SELECT FROM refused)
), subs_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret, hostname, cluster_role,
                         cluster_index)
    SELECT u.id, u.session_id, 1, 'PENDING', u.secret, 'sub' || u.index, 'sub', u.index
    FROM unnest($35::uuid[], $36::int[], $37::uuid[], $38::text[])
        AS u(session_id, index, id, secret)
    WHERE NOT EXISTS (SELECT FROM refused)
), ssh_keys_added AS (
    INSERT INTO session_keys (session_id, private_key, public_key)
    SELECT y.session_id, y.private_key, y.public_key
    FROM unnest($39::uuid[], $40::text[], $41::text[]) AS y(session_id, private_key, public_key)
    WHERE NOT EXISTS (SELECT FROM refused)
), dependencies_added AS (
    INSERT INTO session_dependencies (session_id, depends_on, condition)
    SELECT d.session_id, d.depends_on, d.condition
    FROM unnest($19::uuid[], $20::uuid[], $21::text[]) AS d(session_id, depends_on, condition)
    WHERE NOT EXISTS (SELECT FROM refused)
), limits AS (
    SELECT DISTINCT i.step, i.at_once
    FROM input i WHERE i.at_once IS NOT NULL AND NOT EXISTS (SELECT FROM refused)
), kept_elements AS MATERIALIZED (
    SELECT p.session_id, p.at_once AS before, l.at_once
    FROM kept k JOIN pipeline_steps p ON p.session_id = k.id JOIN limits l ON l.step = p.step
), turns AS MATERIALIZED ( -- an earlier release let elements wait for earlier ones of their array
    SELECT d.session_id, d.depends_on FROM kept_elements k
    JOIN session_dependencies d ON d.session_id = k.session_id AND d.condition = 'any'
    WHERE (SELECT ROW(p.pipeline_id, p.step)
           FROM pipeline_steps p WHERE p.session_id = d.session_id)
        = (SELECT ROW(p.pipeline_id, p.step)
           FROM pipeline_steps p WHERE p.session_id = d.depends_on)
), turns_removed AS (
    DELETE FROM session_dependencies d USING turns t
    WHERE d.session_id = t.session_id AND d.depends_on = t.depends_on AND d.condition = 'any'
), elements_wait AS (
    UPDATE pipeline_steps p SET turn = 'waiting', at_once = k.at_once FROM kept_elements k
    WHERE p.session_id = k.session_id
), turned AS (
    SELECT k.session_id,
           (k.before IS NULL)::int - (SELECT count(*) FROM turns t
                                      WHERE t.session_id = k.session_id) AS more
    FROM kept_elements k
), waiting AS MATERIALIZED (
    SELECT s.id FROM sessions s
    WHERE s.status = 'PENDING' AND NOT EXISTS (SELECT FROM refused) AND s.id IN (
        SELECT d.session_id
        FROM session_dependencies d JOIN pipeline_steps p ON p.session_id = d.session_id
        WHERE d.depends_on = ANY ($33::uuid[]) AND p.pipeline_id = $30::uuid)
    ORDER BY s.id FOR UPDATE
-- NOT IN here and IN below are hashed; a join of CTEs, whose sizes are unknown, would compare all
-- pairs
), repointed AS (
    UPDATE session_dependencies d SET depends_on = r.new
    FROM unnest($33::uuid[], $34::uuid[]) AS r(old, new), waiting w
    WHERE d.depends_on = r.old AND d.session_id = w.id
      AND (d.session_id, d.depends_on) NOT IN (SELECT session_id, depends_on FROM turns)
), changed AS ( -- another revision, so that what was decided from the old dependencies is stale
    UPDATE sessions s
    SET revision = s.revision + 1, hold = NULL, dependencies = s.dependencies + coalesce(w.more, 0)
    FROM (SELECT coalesce(w.id, t.session_id) AS id, t.more
          FROM waiting w FULL JOIN turned t ON t.session_id = w.id) w
    WHERE s.id = w.id
    RETURNING s.id, s.revision
), told AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT c.id, c.revision, 'redirected', 'PENDING', 'PENDING', 'manager',
           CASE WHEN c.id IN (SELECT id FROM waiting) THEN 'waits for the new run of a step'
                ELSE 'waits for its turn in its array' END
    FROM changed c
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT i.id, 1, 'created', NULL, 'PENDING', i.created_by
    FROM input i
    WHERE NOT EXISTS (SELECT FROM refused)
), keys_added AS (
    INSERT INTO idempotency_keys (scope, key, request_digest, session_id)
    SELECT i.scope, i.key, i.request_digest, i.id
    FROM input i
    WHERE i.key IS NOT NULL AND NOT EXISTS (SELECT FROM refused)
), steps_added AS (
    INSERT INTO pipeline_steps (pipeline_id, step, index, run, position, session_id, at_once, turn)
    SELECT $30::uuid, i.step, i.index, i.run, i.position, i.id, i.at_once,
           CASE WHEN i.at_once IS NOT NULL THEN 'waiting' END
    FROM input i
    WHERE NOT EXISTS (SELECT FROM refused)
)
SELECT r.n, r.problem, r.scope, r.name, r.allowed, r.there,
       ARRAY(SELECT id FROM changed) AS changed, (SELECT created_at FROM pipeline) AS created_at,
       (SELECT deadline_at FROM pipeline) AS deadline_at
FROM (SELECT true) one LEFT JOIN (SELECT * FROM refused ORDER BY n LIMIT 1) r ON true
