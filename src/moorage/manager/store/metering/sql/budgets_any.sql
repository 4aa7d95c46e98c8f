-- A row if there is a budget.
SELECT true AS there FROM budgets LIMIT 1
