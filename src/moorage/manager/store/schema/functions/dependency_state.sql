-- Returns how the end of a session affects its dependents: met, unmet (not yet) or failed.
-- Conditions on a set of sessions are always unmet here; dependency_outcomes decides them.
CREATE OR REPLACE FUNCTION dependency_state(condition text, status text, result text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE
        WHEN status NOT IN (:TERMINAL) THEN 'unmet'
        WHEN condition LIKE 'any-%' THEN 'unmet'
        WHEN condition = 'any' THEN 'met'
        WHEN condition = 'success' AND result = 'SUCCESS' THEN 'met'
        WHEN condition = 'failure' AND (result = 'FAILED' OR status = 'ERROR') THEN 'met'
        ELSE 'failed' END
$$;
