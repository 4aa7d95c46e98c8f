-- The $1 budgets with the largest used share of the hard limit, or of the soft one if there is no
-- hard limit. A limit of 0 is exhausted from the start.
SELECT scope, name, unit, period,
       coalesce(used::float8 / nullif(coalesce(hard, soft), 0), 1) AS ratio
FROM budgets ORDER BY ratio DESC, scope, name, unit, period LIMIT $1
