-- name: task_list_put
-- Store lines under their digest, in chunks of 1000, unless they are there.
WITH list AS (
    INSERT INTO task_lists (digest) VALUES ($1)
    ON CONFLICT (digest) DO UPDATE SET used_at = now()
)
INSERT INTO task_lines (digest, first, lines)
SELECT $1, c * 1000 + 1, ($2::text[])[c * 1000 + 1 : c * 1000 + 1000]
FROM generate_series(0, (cardinality($2::text[]) - 1) / 1000) c
ON CONFLICT DO NOTHING

-- name: tasks_exchange
SELECT exchange_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) AS answer

-- name: task_summary
-- Tasks of a session by the state of their last attempt. Tasks of kernels that have ended are LOST.
SELECT s.id, s.name, coalesce(as_integer(s.spec #> '{tasks,count}'), 0) AS total,
       coalesce(l.succeeded, 0) AS succeeded, coalesce(l.failed, 0) AS failed,
       coalesce(l.lost, 0) + coalesce(g.lost, 0) AS lost, coalesce(g.given, 0) AS given
FROM sessions s LEFT JOIN session_task_lists l ON l.session_id = s.id
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE k.status IN (:TERMINAL)) AS lost,
           count(*) FILTER (WHERE k.status NOT IN (:TERMINAL)) AS given
    FROM session_tasks t JOIN kernels k ON k.id = t.kernel_id
    WHERE t.session_id = s.id AND t.state = 'GIVEN') g ON true
WHERE s.id = $1 AND ($2::text[] IS NULL OR s.project = ANY ($2))

-- name: tasks_unfinished
-- Lines of the tasks that have not succeeded, with their numbers.
SELECT n AS number, w.lines[n - w.first + 1] AS line
FROM sessions s, generate_series(1, as_integer(s.spec #> '{tasks,count}')) n
JOIN task_lines w ON w.first = (n - 1) / 1000 * 1000 + 1
WHERE s.id = $1 AND ($2::text[] IS NULL OR s.project = ANY ($2))
      AND w.digest = s.spec #>> '{tasks,digest}'
      AND NOT EXISTS (SELECT FROM session_tasks t WHERE t.session_id = s.id AND t.number = n
                      AND t.state = 'SUCCEEDED')
ORDER BY n

-- name: task_lists_delete_old
-- Delete lists that no session uses.
DELETE FROM task_lists
WHERE digest IN (
    SELECT l.digest FROM task_lists l
    WHERE l.used_at < now() - make_interval(secs => $1)
          AND NOT EXISTS (SELECT FROM sessions s
                          WHERE s.spec ? 'tasks' AND s.spec #>> '{tasks,digest}' = l.digest)
    ORDER BY l.used_at LIMIT $2)
RETURNING digest
