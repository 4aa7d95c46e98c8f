-- Returns how the end of a session affects its dependents: met, unmet (not yet) or failed.
CREATE OR REPLACE FUNCTION dependency_state(condition text, status text, result text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE
        WHEN status NOT IN (:TERMINAL) THEN 'unmet'
        WHEN condition = 'any' THEN 'met'
        WHEN condition = 'success' AND result = 'SUCCESS' THEN 'met'
        WHEN condition = 'failure' AND (result = 'FAILED' OR status = 'ERROR') THEN 'met'
        ELSE 'failed' END
$$;
