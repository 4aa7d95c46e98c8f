-- Load of the devices of node $1 in the spans of $2 seconds that begin at or after $4 and before
-- $5, merged into steps of $3 seconds, as one array for each column (by primary key).
WITH steps AS (
    SELECT d.id, date_bin(make_interval(secs => $3), s.at, 'epoch') AS at,
           sum(d.gpu * d.n) / sum(d.n) FILTER (WHERE d.gpu IS NOT NULL) AS gpu,
           sum(d.memory * d.n) / sum(d.n) AS memory,
           sum(d.heat * d.n) / sum(d.n) FILTER (WHERE d.heat IS NOT NULL) AS heat,
           sum(d.power * d.n) / sum(d.n) FILTER (WHERE d.power IS NOT NULL) AS power
    FROM agent_load_spans s
    CROSS JOIN LATERAL unnest(s.devices, s.device_samples, s.gpu, s.device_memory, s.temperature,
                              s.power) AS d(id, n, gpu, memory, heat, power)
    WHERE s.agent_id = $1 AND s.seconds = $2 AND s.at >= $4 AND s.at < $5
    GROUP BY 1, 2
)
SELECT id AS device_id, array_agg(extract(epoch FROM at)::bigint ORDER BY at) AS at,
       array_agg(gpu ORDER BY at) AS gpu, array_agg(memory ORDER BY at) AS memory,
       array_agg(heat ORDER BY at) AS temperature, array_agg(power ORDER BY at) AS power
FROM steps GROUP BY 1 ORDER BY 1
