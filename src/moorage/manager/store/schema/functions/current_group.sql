-- Returns the current name of a group. An alias never points at an alias, so one step resolves
-- every name.
CREATE OR REPLACE FUNCTION current_group(named text)
RETURNS text LANGUAGE sql STABLE AS $$
SELECT coalesce((SELECT g.renamed_to FROM resource_groups g WHERE g.name = named), named)
$$;
