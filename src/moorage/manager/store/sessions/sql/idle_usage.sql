-- The mean usage of sessions ($1) over their windows ($2 seconds), summed over the kernels of the
-- current attempt; NULL if fewer than $3 minutes are known of any kernel. A minute is known a
-- little after it has ended.
SELECT w.id, sum(m.cpu)::float8 AS cpu, sum(m.memory)::float8 AS memory,
       CASE WHEN bool_and(m.gpu IS NOT NULL) THEN sum(m.gpu)::float8 END AS gpu
FROM unnest($1::uuid[], $2::float8[], $3::int[]) AS w(id, window_s, minutes)
JOIN sessions s ON s.id = w.id JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
    AND k.status NOT IN (:TERMINAL) -- a cluster may go on without some
CROSS JOIN LATERAL (
    SELECT count(*) AS minutes, avg(u.cpu) AS cpu, avg(u.memory) AS memory, avg(u.gpu) AS gpu
    FROM kernel_usage_spans u
    WHERE u.kernel_id = k.id AND u.seconds = 60
      AND u.at > now() - make_interval(secs => w.window_s + 90) AND u.at <= now()) m
GROUP BY w.id HAVING bool_and(m.minutes >= w.minutes)
