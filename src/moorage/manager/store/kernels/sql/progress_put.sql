-- Write the latest progress that programs reported ($1 agent, $2 kernel, $3 fraction, $4 step, $5
-- of, $6 message, $7 problem). A kernel must belong to the agent that reports it. Equal progress
-- changes nothing. Returns the sessions whose progress changed.
WITH given AS MATERIALIZED (
    SELECT k.id, k.session_id, i.fraction, i.step, i."of", i.message, i.problem
    FROM unnest($1::text[], $2::uuid[], $3::float8[], $4::bigint[], $5::bigint[], $6::text[],
                $7::text[])
        AS i(agent_id, kernel_id, fraction, step, "of", message, problem)
    JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
    WHERE k.status NOT IN (:TERMINAL)
), written AS (
    INSERT INTO kernel_progress AS p (kernel_id, fraction, step, "of", message, problem)
    SELECT id, fraction, step, "of", message, problem FROM given ORDER BY id
    ON CONFLICT (kernel_id)
    DO UPDATE SET fraction = excluded.fraction, step = excluded.step, "of" = excluded."of",
    message = excluded.message, problem = excluded.problem, at = now()
    WHERE (p.fraction, p.step, p."of", p.message, p.problem)
        IS DISTINCT FROM (excluded.fraction, excluded.step, excluded."of", excluded.message,
                          excluded.problem)
    RETURNING kernel_id
)
SELECT DISTINCT g.session_id FROM written w JOIN given g ON g.id = w.kernel_id
