-- The budgets whose hard limit is reached.
SELECT b.scope, b.name, b.unit, b.period, b.used, b.hard, b.resets_at
FROM budgets b WHERE b.level = 'hard' AND b.resets_at > now() ORDER BY b.resets_at DESC
