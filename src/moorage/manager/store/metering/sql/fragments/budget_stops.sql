-- A CTE: the budgets that are exhausted now and stop running work (index budgets_reached).
budget_stops AS MATERIALIZED (
    SELECT b.scope, b.name, b.unit, b.period, b.resets_at FROM budgets b
    WHERE b.level <> 'ok' AND b.level = 'hard' AND b.policy = 'stop' AND b.resets_at > now()
)
