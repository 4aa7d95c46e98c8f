-- Change a session ($1, of these projects $2) at revision $3, or nothing at all. $4: the new name.
-- $5, $6: labels to set and to remove, at most $7 in all. $8: the priority, $9: the resource group,
-- $10: changed fields of the specification. $11: the new limit of its run, $12: the former one.
-- $13: the role that holds it from now on, $14: whether it is released. $15: the actor, $16: the
-- event for the history, $17: its detail. NULL keeps a value. The history of a session that has
-- ended is complete, so its revision stays.
--
-- Compare-and-swap: no row means that the session has changed since it was read. In the row,
-- `changed` shows whether it was written, and the other columns why not. Pending sessions of the
-- new group are counted as in session_create_checked.sql.
--
-- The deadline of a running session moves with its limit, and stays in the future. Usage is charged
-- to the group of the session, so that group stays while a kernel of an earlier attempt may run.
WITH i AS MATERIALIZED (
    SELECT s.*,
           CASE WHEN $11::float8 IS NULL OR s.status <> 'RUNNING' THEN s.deadline_at
                WHEN s.suspended_attempt = s.attempt THEN NULL
                WHEN $12::float8 IS NULL OR s.deadline_at IS NULL
                THEN s.status_since + make_interval(secs => $11)
                ELSE s.deadline_at + make_interval(secs => $11 - $12) END AS next_deadline,
           CASE WHEN $11::float8 IS NULL OR s.suspended_attempt IS DISTINCT FROM s.attempt
                THEN s.suspended_left_s
                ELSE coalesce(s.suspended_left_s + $11 - $12,
                              $11 - extract(epoch FROM s.suspended_at - s.status_since))
                END AS next_left_s,
           coalesce($9, s.resource_group) AS next_group,
           (s.user_labels || $5::jsonb) - $6::text[] AS next_labels
    FROM sessions s
    WHERE s.id = $1::uuid AND s.revision = $3 AND ($2::text[] IS NULL OR s.project = ANY ($2))
      AND s.removed_at IS NULL
    FOR NO KEY UPDATE OF s
), over_quota AS MATERIALIZED (
    SELECT w.name, w.pending
    FROM i CROSS JOIN LATERAL lock_pending_quotas(ARRAY['group'], ARRAY[i.next_group]) w
    WHERE i.next_group <> i.resource_group AND w.there >= w.pending
), over_limit AS MATERIALIZED (
    SELECT w.name, w.owner, w.pending
    FROM i CROSS JOIN LATERAL lock_pending_limits(ARRAY[i.next_group], ARRAY[i.owner]) w
    WHERE i.next_group <> i.resource_group AND i.type <> 'system' AND w.there >= w.pending
      AND NOT EXISTS (SELECT FROM over_quota)
), judged AS MATERIALIZED (
    SELECT i.id,
           (SELECT count(*) FROM jsonb_object_keys(as_object(i.next_labels))) > $7
               AND i.next_labels <> i.user_labels AS too_many_labels,
           g.name IS NOT NULL AND
-- include: group_admits
               AS group_known,
           CASE WHEN i.next_group <> i.resource_group AND NOT
-- include: group_allows_type
                THEN
-- include: group_types
           END AS types_allowed,
           CASE WHEN i.next_group <> i.resource_group THEN (
               SELECT min(k.agent_id) FROM kernels k
               WHERE k.session_id = i.id AND k.attempt < i.attempt
                 AND k.status NOT IN (:TERMINAL)) END AS earlier_agent,
           CASE WHEN $11::float8 IS NOT NULL AND i.status = 'RUNNING'
                     AND coalesce(i.next_left_s <= 0, i.next_deadline <= now(), false)
                THEN CASE WHEN $12::float8 IS NULL
                          THEN extract(epoch FROM now() - i.status_since)
                          ELSE $12 - coalesce(i.suspended_left_s,
                                              extract(epoch FROM i.deadline_at - now())) END
                END::float8 AS ran_s,
           $4::text IS NOT NULL AND i.type = 'inference' AS keeps_name
    FROM i LEFT JOIN resource_groups g ON g.name = i.next_group
), allowed AS MATERIALIZED (
    SELECT j.id FROM judged j, i
    WHERE NOT j.too_many_labels AND NOT j.keeps_name AND j.types_allowed IS NULL
      AND j.earlier_agent IS NULL AND j.ran_s IS NULL
      AND (j.group_known OR i.next_group = i.resource_group)
      AND NOT EXISTS (SELECT FROM over_quota) AND NOT EXISTS (SELECT FROM over_limit)
), changed AS (
    UPDATE sessions s SET
        revision = s.revision + (s.status NOT IN (:TERMINAL))::int,
        name = coalesce($4, s.name), user_labels = i.next_labels,
        priority = coalesce($8, s.priority), resource_group = i.next_group,
        spec = s.spec || coalesce($10::jsonb, '{}')
               || CASE WHEN $4::text IS NOT NULL AND s.spec ? 'name'
                       THEN jsonb_build_object('name', $4::text) ELSE '{}' END,
        deadline_at = i.next_deadline, suspended_left_s = i.next_left_s,
        held_by = CASE WHEN $14::boolean THEN NULL WHEN $13::text IS NULL THEN s.held_by
                       ELSE $15 END,
        held_as = CASE WHEN $14 THEN NULL ELSE coalesce($13, s.held_as) END,
        held_at = CASE WHEN $14 THEN NULL WHEN $13 IS NULL THEN s.held_at ELSE now() END,
        hold = CASE WHEN $8::int IS NULL AND $9::text IS NULL AND $13 IS NULL AND NOT $14
                    THEN s.hold END
    FROM i JOIN allowed a ON a.id = i.id
    WHERE s.id = i.id
    RETURNING s.id, s.revision, s.status, s.attempt
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, detail)
    SELECT id, revision, $16, status, status, $15, $17 FROM changed
    WHERE status NOT IN (:TERMINAL)
)
SELECT EXISTS (SELECT FROM changed) AS changed, j.*,
       ARRAY(SELECT k.agent_id FROM changed c
             JOIN kernels k ON k.session_id = c.id AND k.attempt = c.attempt
             WHERE $11 IS NOT NULL AND k.agent_id IS NOT NULL
               AND k.status NOT IN (:TERMINAL)) AS agents,
       q.name AS quota_group, q.pending AS quota_pending,
       l.name AS limit_group, l.owner AS limit_user, l.pending AS limit_pending
FROM judged j LEFT JOIN over_quota q ON true LEFT JOIN over_limit l ON true
