-- Lets elements of arrays take their turns, the lowest positions first, until as many have one as
-- may run at a time. Each array is a step of a pipeline with its limit. Returns the elements.
--
-- An element keeps its turn until it has ended, so no more run than the limit allows, no matter in
-- which order elements end or are stopped. Only one transaction at a time lets elements of a
-- pipeline take turns; it then reads what the others have committed.
CREATE OR REPLACE FUNCTION admit_elements(given_pipelines uuid[], given_steps text[],
                                          given_limits integer[])
RETURNS SETOF uuid LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM pipelines p
    WHERE p.id = ANY (given_pipelines) ORDER BY p.id FOR NO KEY UPDATE;
    RETURN QUERY
    WITH arrays AS (
        SELECT DISTINCT a.pipeline_id, a.step, a.at_once
        FROM unnest(given_pipelines, given_steps, given_limits) AS a(pipeline_id, step, at_once)
    ), next AS MATERIALIZED (
        SELECT w.session_id FROM arrays a
        CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM pipeline_steps t
            WHERE t.pipeline_id = a.pipeline_id AND t.step = a.step AND t.turn = 'taken') taken
        CROSS JOIN LATERAL (
            SELECT w.session_id FROM pipeline_steps w
            WHERE w.pipeline_id = a.pipeline_id AND w.step = a.step AND w.turn = 'waiting'
            ORDER BY w.position LIMIT greatest(a.at_once - taken.n, 0)) w
    )
    UPDATE pipeline_steps s SET turn = 'taken' FROM next n
    WHERE s.session_id = n.session_id AND s.turn = 'waiting'
    RETURNING s.session_id;
END $$;
