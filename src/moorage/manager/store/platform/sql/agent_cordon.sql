-- Cordon or drain an agent ($1, by $2: 'cordon' or 'drain'), or uncordon it ($2 empty). $3: seconds
-- until the remaining sessions are stopped or requeued; $4: the actor. No row: the agent does not
-- exist.
WITH changed AS (
    UPDATE agents SET cordon = $2, cordoned_by = CASE WHEN $2 = '' THEN '' ELSE $4 END,
        cordoned_at = CASE WHEN $2 = '' THEN NULL ELSE now() END,
        stop_at = now() + make_interval(secs => $3::float8)
    WHERE id = $1 AND incarnation <> ''
    RETURNING id
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT id, CASE WHEN $2 = '' THEN 'uncordon' ELSE $2 END, $4,
           CASE WHEN $3::float8 IS NOT NULL
                THEN format('sessions left after %s s are stopped', $3::float8)
                ELSE '' END
    FROM changed
)
SELECT id FROM changed
