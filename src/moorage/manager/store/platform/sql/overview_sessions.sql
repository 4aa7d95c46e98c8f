-- Live sessions of projects $1 (NULL: all) by group, status and the reason of the hold.
SELECT resource_group, status,
       CASE WHEN status = 'PENDING' THEN coalesce(hold ->> 'reason', '') ELSE '' END AS reason,
       count(*) AS n, min(created_at) AS oldest
FROM sessions
WHERE status NOT IN (:TERMINAL) AND ($1::text[] IS NULL OR project = ANY ($1))
GROUP BY 1, 2, 3
