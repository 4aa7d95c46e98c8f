-- The budgets whose soft or hard limit is reached.
SELECT b.scope, b.name, b.unit, b.period, b.level, b.resets_at
FROM budgets b WHERE b.level <> 'ok' AND b.resets_at > now() ORDER BY b.resets_at DESC, b.unit
