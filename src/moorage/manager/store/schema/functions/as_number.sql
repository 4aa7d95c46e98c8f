-- Returns NULL for another type. Within the bounds, so many seconds before or after now are a time
-- that Python knows. See as_array.
CREATE OR REPLACE FUNCTION as_number(value jsonb)
RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'number'
        THEN CASE WHEN value::numeric BETWEEN -1e11 AND 1e11 THEN value::float8 END END
$$;
