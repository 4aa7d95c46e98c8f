-- Rename group $1 to $2, which leaves $1 as an alias, if it has one of the versions $3 (NULL allows
-- any). $4: the actor. `outcome`: renamed; changed (it has another version or name); or taken (by
-- another group or alias).
SELECT rename_group($1, $2, $3, $4) AS outcome
