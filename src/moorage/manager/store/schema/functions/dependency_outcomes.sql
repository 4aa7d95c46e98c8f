-- Returns the dependencies of a session, each with its state: met, unmet (not yet) or failed.
--
-- A condition such as `any-failure:part` is one of a set: all elements of the step `part` must end,
-- and at least one of them must fail. Elements that have ended are met while others run, since
-- nothing waits for them. Managers of the previous release take these conditions as unmet.
--
-- An array element that waits for its turn depends on the rest of its array; that is one row with
-- the element's own id.
CREATE OR REPLACE FUNCTION dependency_outcomes(session uuid)
RETURNS TABLE (depends_on uuid, condition text, status text, result text, reason text, state text)
LANGUAGE sql STABLE AS $$
SELECT d.depends_on, d.condition, u.status, u.result, u.reason,
       CASE WHEN d.condition NOT LIKE 'any-%'
                THEN dependency_state(d.condition, u.status, u.result)
            WHEN u.status NOT IN (:TERMINAL) THEN 'unmet'
            WHEN bool_or(u.status NOT IN (:TERMINAL)) OVER elements THEN 'met'
            WHEN bool_or(dependency_state(substring(d.condition FROM '^any-(\w+):'),
                                          u.status, u.result) = 'met') OVER elements THEN 'met'
            ELSE 'failed' END
FROM session_dependencies d JOIN sessions u ON u.id = d.depends_on
WHERE d.session_id = session
WINDOW elements AS (PARTITION BY d.condition)
UNION ALL
SELECT p.session_id, 'turn', 'PENDING', 'UNDEFINED', '', 'unmet'
FROM pipeline_steps p WHERE p.session_id = session AND p.turn = 'waiting'
$$;
