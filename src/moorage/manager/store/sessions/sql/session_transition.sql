-- The only statement that changes a session's status after its placement (session_place.sql does
-- that). Compare-and-swap on status and revision: `locked` compares them and locks the rows in the
-- order of their ids, so that they cannot change before the update. Writes the history, and the
-- consequences for the kernels. Returns ended kernels with their agents, the sessions that
-- depend on one that has ended, and the arrays in which an element has ended and leaves its turn to
-- others. A stale transition changes nothing and returns no row.
-- `next_kernel` is set for a retry, a requeue (by a person as well) and a preemption: a new kernel
-- with a new id, and new sub kernels for a cluster. `term` is set for decisions that only the
-- leader may make: the lease is locked FOR SHARE, so that no other manager becomes leader until
-- this commits.
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::float8[], $12::uuid[], $13::text[], $14::float8[],
        $19::bigint[])
    AS i(id, old, revision, new, event, reason, detail, actor, result, kernel_status, deadline_s,
         next_kernel, secret, backoff_s, term)
), lease AS (
    SELECT term FROM leases
    WHERE name = 'leader' AND term = ANY ($19::bigint[]) AND expires_at > now() FOR SHARE
), locked AS (
    SELECT i.*, s.attempt FROM sessions s JOIN input i ON s.id = i.id
    WHERE s.status = i.old AND s.revision = i.revision
      AND (i.term IS NULL OR i.term IN (SELECT term FROM lease))
    ORDER BY s.id FOR UPDATE OF s
), moved AS (
    UPDATE sessions s SET
        status = i.new, revision = s.revision + 1, reason = i.reason, detail = i.detail,
        result = coalesce(i.result, s.result),
        deadline_at = now() + make_interval(secs => i.deadline_s),
        status_since = CASE WHEN i.new = i.old THEN s.status_since ELSE now() END,
        ready_at = CASE WHEN i.new = 'RUNNING' AND i.old <> i.new THEN now() ELSE s.ready_at END,
        attempt = s.attempt + (i.next_kernel IS NOT NULL)::int,
        requeues = s.requeues + (i.event = 'requeue')::int,
        requeued_from
            = CASE WHEN i.event IN ('requeue', 'preempt', 'send-back') THEN s.attempt
                   ELSE s.requeued_from END,
        not_before = now() + make_interval(secs => i.backoff_s),
        hold = NULL, retries = CASE WHEN i.new = 'PENDING' THEN 0 ELSE s.retries END,
        bypassed = CASE WHEN i.new = 'PENDING' THEN 0 ELSE s.bypassed END
    FROM locked i
    WHERE s.id = i.id
    RETURNING s.id, s.revision, i.attempt AS old_attempt, i.old, i.new, i.event, i.reason, i.detail,
              i.actor, i.kernel_status, i.next_kernel, i.secret, s.type, s.endpoint_id,
              coalesce(s.spec -> 'ports', '[]') <> '[]' AS offers
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, reason, actor,
                                 detail)
    SELECT m.id, m.revision, m.event, m.old, m.new, m.reason, m.actor, m.detail
    FROM moved m
), ended AS (
    UPDATE kernels k SET
        status = CASE WHEN k.status = 'PENDING' THEN 'CANCELLED' ELSE m.kernel_status END,
        status_since = now(),
        reason = CASE WHEN k.reason = '' THEN m.reason ELSE k.reason END
    FROM moved m
    WHERE k.session_id = m.id AND k.attempt = m.old_attempt
      AND k.status NOT IN (:TERMINAL)
      AND (m.kernel_status IS NOT NULL OR k.status = 'PENDING')
    RETURNING k.id, k.session_id, k.agent_id
), fresh AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT m.next_kernel, m.id, m.old_attempt + 1, 'PENDING', m.secret
    FROM moved m
    WHERE m.next_kernel IS NOT NULL
), fresh_subs AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret, hostname, cluster_role,
                         cluster_index)
    SELECT u.id, m.id, m.old_attempt + 1, 'PENDING', u.secret, 'sub' || u.index, 'sub', u.index
    FROM unnest($15::uuid[], $16::int[], $17::uuid[], $18::text[])
        AS u(session_id, index, id, secret)
    JOIN moved m ON m.id = u.session_id
), turns_left AS (
    UPDATE pipeline_steps p SET turn = NULL FROM moved e
    WHERE p.session_id = e.id AND p.turn IS NOT NULL AND e.new IN (:TERMINAL)
    RETURNING p.session_id, p.pipeline_id, p.step, p.at_once
)
SELECT m.id, m.type, m.endpoint_id, e.agent_id, e.id AS kernel_id, m.offers,
       CASE WHEN m.new IN (:TERMINAL)
            THEN ARRAY(SELECT d.session_id
                       FROM session_dependencies d WHERE d.depends_on = m.id) END AS dependents,
       t.pipeline_id, t.step, t.at_once
FROM moved m LEFT JOIN ended e ON e.session_id = m.id
LEFT JOIN turns_left t ON t.session_id = m.id
