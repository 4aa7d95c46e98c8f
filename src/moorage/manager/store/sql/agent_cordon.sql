-- Nothing new for an agent ($1), or (uncordon, $2 empty) again. $3: sessions that are left in so many seconds are stopped
-- or moved; $4: who asks. No row: there is no such agent.
WITH changed AS (
    UPDATE agents SET cordon = $2, cordoned_by = CASE WHEN $2 = '' THEN '' ELSE $4 END,
        cordoned_at = CASE WHEN $2 = '' THEN NULL ELSE now() END, stop_at = now() + make_interval(secs => $3::float8)
    WHERE id = $1 AND incarnation <> ''
    RETURNING id
), noted AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT id, CASE WHEN $2 = '' THEN 'uncordon' ELSE $2 END, $4,
           CASE WHEN $3::float8 IS NOT NULL THEN format('what is left after %s s is stopped', $3::float8) ELSE '' END
    FROM changed
)
SELECT id FROM changed
