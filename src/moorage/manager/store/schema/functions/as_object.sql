-- Returns an empty object for another type. See as_array.
CREATE OR REPLACE FUNCTION as_object(value jsonb)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'object' THEN value ELSE '{}'::jsonb END
$$;
