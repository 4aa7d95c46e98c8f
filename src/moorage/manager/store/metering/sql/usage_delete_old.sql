-- Delete hours older than $1 seconds, at most $2 of them (index kernel_usage_spans_age).
DELETE FROM kernel_usage_spans s USING (
    SELECT kernel_id, seconds, at FROM kernel_usage_spans
    WHERE seconds = 3600 AND at < now() - make_interval(secs => $1) LIMIT $2
) o WHERE (s.kernel_id, s.seconds, s.at) = (o.kernel_id, o.seconds, o.at)
RETURNING s.kernel_id
