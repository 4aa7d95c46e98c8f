-- Spans of $2 seconds of groups $1 that begin at or after $3 and before $4, as one array for each
-- column.
SELECT resource_group, slot, array_agg(extract(epoch FROM at)::bigint ORDER BY at) AS at,
       array_agg(capacity ORDER BY at) AS capacity, array_agg(used ORDER BY at) AS used,
       array_agg(used_peak ORDER BY at) AS used_peak
FROM occupancy_spans
WHERE resource_group = ANY ($1::text[]) AND seconds = $2 AND at >= $3 AND at < $4
GROUP BY 1, 2
