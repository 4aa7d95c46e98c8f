-- The kernels among these ($1) that the database does not know.
SELECT i.id FROM unnest($1::uuid[]) AS i(id)
WHERE NOT EXISTS (SELECT FROM kernels k WHERE k.id = i.id)
