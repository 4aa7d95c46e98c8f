-- Aggregate the usage of each budget in its current period (in UTC), under the leader's term ($1),
-- and store it with the level that it has reached. Returns budgets whose level has changed, budgets
-- that are exhausted and stop running work, and those that will be exhausted within $2 seconds
-- (`left_s`) at the rate since their last aggregation. `alerts`: limits that were reached for the
-- first time in this period, which are kept and audited.
WITH
-- include: ledger_entries
, open AS (
    SELECT b.scope, b.name, b.unit, b.period, b.soft, b.hard, b.level, b.used, b.measured_at,
           b.resets_at AS old_resets_at, date_trunc(b.period, now(), 'UTC') AS began_at,
           (date_trunc(b.period, now() AT TIME ZONE 'UTC')
                + ('1 ' || b.period)::interval) AT TIME ZONE 'UTC' AS resets_at,
           CASE b.scope
                WHEN 'key' THEN (SELECT k.id::text
                                 FROM api_keys k
                                 WHERE k.name = b.name AND k.revoked_at IS NULL)
                ELSE b.name END AS payer
    FROM budgets b
    WHERE EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $1 AND expires_at > now())
), recent AS MATERIALIZED (
    SELECT * FROM entries e WHERE e.amount <> 0 AND e.ended_at >= (SELECT min(began_at) FROM open)
), measured AS (
    SELECT o.scope, o.name, o.unit, o.period, CASE o.unit
        WHEN 'money' THEN floor(sum(s.amount * s.price * c.price_factor * ledger_weight(c.unit))
                                  / 2304000000)
        ELSE sum(s.amount) END AS used
    FROM recent c
    CROSS JOIN LATERAL (VALUES ('project', c.project), ('user', c.username),
                            ('key', c.key_id)) w(scope, payer)
    JOIN open o ON (o.scope, o.payer) = (w.scope, w.payer)
      AND c.ended_at >= o.began_at
      AND (o.unit IN ('money', c.unit)
           OR o.unit = 'tokens' AND c.unit IN ('tokens_in', 'tokens_out'))
    JOIN price_spans q ON q.unit = c.unit AND CASE WHEN c.rate = 0
        THEN q.since <= c.ended_at AND coalesce(q.until > c.ended_at, true)
        ELSE q.since < c.ended_at AND coalesce(q.until > c.began_at, true) END
    CROSS JOIN LATERAL (SELECT
        CASE WHEN c.rate = 0 THEN c.amount ELSE c.rate * greatest(0, extract(epoch FROM
            least(c.ended_at, q.until) - greatest(c.began_at, o.began_at, q.since))) END AS amount,
        CASE WHEN o.unit = 'money' AND isfinite(q.since)
             THEN ledger_price(c.unit, c.device, c.resource_group, q.since)
             ELSE 0 END AS price) s
    GROUP BY 1, 2, 3, 4
), joined AS (
    -- Written as an aggregate: Postgres cannot estimate the number of budgets to measure, and would
    -- join thousands of budgets in a nested loop.
    SELECT scope, name, unit, period, max(soft) AS soft, max(hard) AS hard, max(level) AS old,
           max(old_used) AS old_used, max(measured_at) AS measured_at,
           max(old_resets_at) AS old_resets_at, max(resets_at) AS resets_at,
           coalesce(sum(used), 0) AS used
    FROM (SELECT scope, name, unit, period, soft, hard, level, used AS old_used, measured_at,
                 old_resets_at, resets_at, NULL::numeric AS used
          FROM open
          UNION ALL
          SELECT scope, name, unit, period, NULL, NULL, NULL, NULL, NULL, NULL, NULL, used
          FROM measured) u
    GROUP BY 1, 2, 3, 4
), levels AS (
    SELECT scope, name, unit, period, soft, hard, old, resets_at, ledger_bounded(used) AS used,
           CASE WHEN used >= hard THEN 'hard' WHEN used >= soft THEN 'soft' ELSE 'ok' END AS level,
           CASE WHEN used < hard AND used > old_used AND old_resets_at = resets_at
                THEN greatest(0,
                              (hard - used) / (used - old_used) * extract(
                                  epoch FROM now() - measured_at))::float8 END AS left_s
    FROM joined
), put AS (
    UPDATE budgets b
    SET used = l.used, level = l.level, resets_at = l.resets_at, measured_at = now()
    FROM levels l WHERE (b.scope, b.name, b.unit, b.period) = (l.scope, l.name, l.unit, l.period)
    RETURNING b.*, l.old, l.left_s
), alerts AS (
    INSERT INTO budget_alerts (scope, name, unit, period, resets_at, level, threshold, used)
    SELECT l.scope, l.name, l.unit, l.period, l.resets_at, t.level, t.threshold, l.used
    FROM levels l CROSS JOIN LATERAL (VALUES ('soft', l.soft), ('hard', l.hard)) t(level, threshold)
    WHERE l.used >= t.threshold AND NOT EXISTS (
        SELECT FROM budget_alerts a
        WHERE (a.scope, a.name, a.unit, a.period, a.resets_at, a.level, a.threshold)
            = (l.scope, l.name, l.unit, l.period, l.resets_at, t.level, t.threshold))
    ORDER BY 1, 2, 3, 4, t.level DESC
    ON CONFLICT DO NOTHING RETURNING *
), audited AS (
    INSERT INTO audit_log (actor, user_name, project, from_address, request_id, action, resource,
                           name, status, after)
    SELECT 'system:budgets', CASE scope WHEN 'user' THEN name ELSE '' END,
           CASE scope WHEN 'project' THEN name ELSE '' END, '', '',
           'budget_' || level || '_limit_reached', 'budgets',
           concat_ws('/', scope, period, unit, name), 200,
           jsonb_build_object('level', level, 'threshold', threshold, 'used', used, 'resets_at',
                              resets_at)
    FROM alerts
), shown AS (
    SELECT p.*, ARRAY(SELECT a.id::text FROM alerts a
                      WHERE (a.scope, a.name, a.unit, a.period)
                          = (p.scope, p.name, p.unit, p.period)
                      ORDER BY a.id) AS alerts
    FROM put p
)
SELECT * FROM shown
WHERE level <> old OR (level = 'hard' AND policy = 'stop') OR left_s < $2
  OR alerts <> ARRAY[]::text[]
