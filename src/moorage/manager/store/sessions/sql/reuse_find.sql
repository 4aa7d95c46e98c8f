-- For each request, by project ($1), hash ($2) and policy ($3): the session that takes its place,
-- if there is one. A live session takes precedence over one that has succeeded. A session with
-- outputs qualifies for $4 seconds, after which nodes remove the outputs. Only sessions that ran,
-- or will run, themselves are considered.
SELECT i.n, found.id
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS i(project, hash, policy, n)
JOIN LATERAL (
    SELECT s.id FROM sessions s
    WHERE s.project = i.project AND s.request_hash = i.hash AND s.adopted_from IS NULL
      AND s.removed_at IS NULL
      AND ((i.policy IN ('live', 'both') AND s.status NOT IN (:TERMINAL, 'TERMINATING'))
        OR (i.policy IN ('success', 'both') AND s.status = 'TERMINATED' AND s.result = 'SUCCESS'
            AND s.ready_at IS NOT NULL
            AND (s.files IS NULL OR s.files -> 'outputs' = '[]'
                 OR s.status_since > now() - make_interval(secs => $4))))
    ORDER BY (s.status = 'TERMINATED'), s.created_at DESC LIMIT 1
) found ON true
