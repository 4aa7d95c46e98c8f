-- Returns an empty array for another type.
--
-- A newer release or a person may have stored any value in JSON. The functions as_NAME read it
-- without an error, which would end the statement for every row. They are not STRICT, and each
-- except as_document is one expression, so Postgres inlines them.
CREATE OR REPLACE FUNCTION as_array(value jsonb)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'array' THEN value ELSE '[]'::jsonb END
$$;
