-- Returns the current names of groups, each once, in the same order.
CREATE OR REPLACE FUNCTION current_groups(named text[])
RETURNS text[] LANGUAGE sql STABLE AS $$
SELECT CASE WHEN named IS NOT NULL
        THEN ARRAY(SELECT current_group(n.name) FROM unnest(named) WITH ORDINALITY n(name, i)
                   GROUP BY 1 ORDER BY min(n.i)) END
$$;
