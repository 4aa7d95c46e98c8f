DELETE FROM budgets WHERE scope = $1 AND name = $2 AND unit = $3 AND period = $4 RETURNING *
