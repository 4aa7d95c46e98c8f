-- The newest $3 spans of $2 seconds of each of these kernels ($1), oldest first (by primary key).
SELECT s.* FROM unnest($1::uuid[]) AS k(id)
CROSS JOIN LATERAL (SELECT * FROM kernel_usage_spans WHERE kernel_id = k.id AND seconds = $2
                    ORDER BY at DESC LIMIT $3) s
ORDER BY s.kernel_id, s.at
