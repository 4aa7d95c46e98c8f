-- Load of endpoint $1 in the spans of $2 seconds that begin at or after $4 and before $5, merged
-- into steps of $3 seconds, oldest first (by primary key).
SELECT extract(epoch FROM date_bin(make_interval(secs => $3), at, 'epoch'))::bigint AS at,
       sum(covered_s) AS covered_s, sum(requests)::bigint AS requests,
       sum(errors)::bigint AS errors, sum(tokens_in)::bigint AS tokens_in,
       sum(tokens_out)::bigint AS tokens_out,
       sum(first_token_ms * first_tokens) / nullif(sum(first_tokens), 0) AS first_token_ms,
       max(first_token_peak_ms) AS first_token_peak_ms,
       sum(running * samples) / sum(samples) AS running,
       sum(waiting * samples) / sum(samples) AS waiting,
       sum(held * samples) / sum(samples) AS held,
       sum(wanted * samples) / sum(samples) AS wanted,
       sum(ready * samples) / sum(samples) AS ready
FROM endpoint_load_spans WHERE endpoint_id = $1 AND seconds = $2 AND at >= $4 AND at < $5
GROUP BY 1 ORDER BY 1
