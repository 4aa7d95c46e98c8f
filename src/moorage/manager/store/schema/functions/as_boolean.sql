-- Returns NULL for another type. See as_array.
CREATE OR REPLACE FUNCTION as_boolean(value jsonb)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'boolean' THEN value::boolean END
$$;
