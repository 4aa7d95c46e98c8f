-- Errors of expected starts, in seconds in either direction: median and 90th percentile over the $3
-- latest estimates of each resource group ($1; NULL: all) and kind ($2) whose session started
-- (index expected_starts_started). `share`: the median ratio of the actual to the expected wait, by
-- which estimates of the kinds $5 are corrected if there are at least $4 of them; the errors are
-- those that remain after the correction.
WITH latest AS (
    SELECT g.name AS resource_group, k.kind, past.waited, past.expected
    FROM resource_groups g CROSS JOIN unnest($2::text[]) AS k(kind), LATERAL (
        SELECT extract(epoch FROM e.started_at - e.told_at)::float8 AS waited,
               extract(epoch FROM e.expected_at - e.told_at)::float8 AS expected
        FROM expected_starts e
        WHERE e.outcome = 'started' AND e.resource_group = g.name AND e.kind = k.kind
        ORDER BY e.told_at DESC LIMIT $3) past
    WHERE g.renamed_to IS NULL AND ($1::text IS NULL OR g.name = $1)
), shares AS (
    SELECT resource_group, kind, count(*) AS starts,
           CASE WHEN kind = ANY ($5::text[]) AND count(*) FILTER (WHERE expected >= 1) >= $4
                THEN greatest(0, percentile_cont(0.5) WITHIN GROUP (ORDER BY waited / expected)
                                     FILTER (WHERE expected >= 1))
                ELSE 1 END AS share
    FROM latest GROUP BY 1, 2
)
SELECT resource_group, kind, starts, share,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(waited - share * expected)) AS p50,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY abs(waited - share * expected)) AS p90
FROM latest JOIN shares USING (resource_group, kind)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
