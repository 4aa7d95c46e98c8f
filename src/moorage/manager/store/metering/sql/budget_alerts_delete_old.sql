-- Delete up to $2 alerts of periods that ended more than $1 seconds ago, and return how many.
WITH gone AS (
    DELETE FROM budget_alerts WHERE id = ANY (ARRAY(
        SELECT id FROM budget_alerts
        WHERE at < now() - make_interval(secs => $1)
          AND resets_at < now() - make_interval(secs => $1)
        ORDER BY at LIMIT $2))
    RETURNING 1
)
SELECT count(*) AS rolled FROM gone
