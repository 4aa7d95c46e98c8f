-- Returns the names of an endpoint's adapters, as clients request them.
CREATE OR REPLACE FUNCTION adapter_names(endpoint text, serving jsonb)
RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(array_agg(endpoint || ':' || (a ->> 'name')) FILTER (WHERE a ? 'name'), '{}')
 FROM jsonb_array_elements(as_array(serving -> 'adapters')) a
$$;
