-- How long jobs of endpoints ($1) waited and loaded in resource groups of kind hpc ($2, one for
-- each): percentiles over the latest $3 of a group's jobs that became ready (index
-- sessions_of_site_jobs). The wait covers all sessions of the group; the loading time covers those
-- of the endpoint, if there are any. The wait is counted from the placement, so that it includes
-- the time before the queue.
SELECT a.endpoint_id, a.resource_group, count(*) AS starts,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY x.queue_s) AS queue_p50_s,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY x.queue_s) AS queue_p90_s,
       coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY x.load_s) FILTER (WHERE x.own),
                percentile_cont(0.5) WITHIN GROUP (ORDER BY x.load_s)) AS load_p50_s,
       coalesce(percentile_cont(0.9) WITHIN GROUP (ORDER BY x.load_s) FILTER (WHERE x.own),
                percentile_cont(0.9) WITHIN GROUP (ORDER BY x.load_s)) AS load_p90_s
FROM unnest($1::uuid[], $2::text[]) AS a(endpoint_id, resource_group), LATERAL (
    SELECT extract(epoch FROM coalesce(h.left_at, h.placed_at) - h.placed_at)::float8 AS queue_s,
           extract(epoch FROM s.ready_at - coalesce(h.left_at, h.placed_at))::float8 AS load_s,
           s.endpoint_id = a.endpoint_id IS TRUE AS own
    FROM (SELECT id, endpoint_id, ready_at
          FROM sessions
          WHERE resource_group = a.resource_group AND spec ? 'job'
            AND ready_at IS NOT NULL ORDER BY ready_at DESC LIMIT $3) s,
    LATERAL (SELECT max(at) FILTER (WHERE event = 'placed') AS placed_at,
                    max(at) FILTER (WHERE from_status = 'QUEUED') AS left_at
             FROM session_history WHERE session_id = s.id AND at <= s.ready_at) h
    WHERE h.placed_at IS NOT NULL) x
GROUP BY 1, 2
