-- Returns the current name of a group and its aliases.
CREATE OR REPLACE FUNCTION group_names(named text)
RETURNS text[] LANGUAGE sql STABLE AS $$
SELECT ARRAY(SELECT current_group(named) UNION
              SELECT g.name FROM resource_groups g WHERE g.renamed_to = current_group(named))
$$;
