-- Returns NULL for another type, and for numbers whose sums might not fit into a bigint. See
-- as_array.
CREATE OR REPLACE FUNCTION as_integer(value jsonb)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'number'
        THEN CASE WHEN value::numeric BETWEEN -1e15 AND 1e15 AND value::numeric % 1 = 0
                  THEN value::bigint END END
$$;
