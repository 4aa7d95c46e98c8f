-- Spans of $2 seconds of groups $1 that begin at or after $3 and before $4, as one array for each
-- column.
SELECT resource_group, array_agg(extract(epoch FROM at)::bigint ORDER BY at) AS at,
       array_agg(pending ORDER BY at) AS pending,
       array_agg(pending_peak ORDER BY at) AS pending_peak,
       array_agg(running ORDER BY at) AS running
FROM queue_spans WHERE resource_group = ANY ($1::text[]) AND seconds = $2 AND at >= $3 AND at < $4
GROUP BY 1
