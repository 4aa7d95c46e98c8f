-- Load of node $1 in the spans of $2 seconds that begin at or after $4 and before $5, merged into
-- steps of $3 seconds, oldest first (by primary key).
SELECT extract(epoch FROM date_bin(make_interval(secs => $3), at, 'epoch'))::bigint AS at,
       sum(cpu * samples) / sum(samples) AS cpu, sum(memory * samples) / sum(samples) AS memory
FROM agent_load_spans WHERE agent_id = $1 AND seconds = $2 AND at >= $4 AND at < $5
GROUP BY 1 ORDER BY 1
