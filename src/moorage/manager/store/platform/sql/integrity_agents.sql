-- The next $2 agents after $1, whose integrity is checked together.
SELECT id FROM agents WHERE id > $1 ORDER BY id LIMIT $2
