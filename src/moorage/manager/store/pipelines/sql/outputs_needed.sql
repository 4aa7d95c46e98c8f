-- Sessions among these ($1) whose outputs a step may still use: a step that has not ended, or one
-- that did not succeed and that a retry within $2 seconds runs again. If equal sessions use a
-- session's result, its outputs are needed just as long.
SELECT s.id FROM sessions s
WHERE s.id = ANY ($1::uuid[]) AND (
    s.status NOT IN (:TERMINAL)
    OR (s.request_hash IS NOT NULL AND s.result = 'SUCCESS'
        AND s.status_since > now() - make_interval(secs => $2))
    OR EXISTS (
        SELECT FROM sessions o
        JOIN session_dependencies d ON d.depends_on = o.id AND d.condition = 'success'
        JOIN sessions c ON c.id = d.session_id AND c.files IS NOT NULL
        WHERE (o.id = s.id OR o.adopted_from = s.id)
          AND (c.status NOT IN (:TERMINAL)
            OR (c.result <> 'SUCCESS' AND c.status_since > now() - make_interval(secs => $2)))))
