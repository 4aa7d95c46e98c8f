-- Set a budget. Its level is measured again; until then, it follows from the usage that was last
-- measured in this period.
INSERT INTO budgets
    AS b (scope, name, unit, period, soft, hard, policy, changed_by, level, resets_at)
SELECT $1, $2, $3, $4, $5::bigint, $6::bigint, $7, $8,
       CASE WHEN $6 = 0 THEN 'hard' WHEN $5 = 0 THEN 'soft' ELSE 'ok' END,
       (date_trunc($4, now() AT TIME ZONE 'UTC') + ('1 ' || $4)::interval) AT TIME ZONE 'UTC'
ON CONFLICT (scope, name, unit, period)
DO UPDATE SET soft = excluded.soft, hard = excluded.hard, policy = excluded.policy,
changed_by = excluded.changed_by, changed_at = now(),
    level = CASE WHEN b.used >= excluded.hard THEN 'hard' WHEN b.used >= excluded.soft THEN 'soft'
                 ELSE 'ok' END
RETURNING *
