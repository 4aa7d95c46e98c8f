-- The $1 budgets of which the largest part is used, of the hard limit, or of the soft one if there
-- is no other. One of 0 is used up from the beginning.
SELECT scope, name, unit, period,
       coalesce(used::float8 / nullif(coalesce(hard, soft), 0), 1) AS ratio
FROM budgets ORDER BY ratio DESC, scope, name, unit, period LIMIT $1
