-- What these sessions ($1) are called, and where they are, for words about those that wait for them.
SELECT id, name, status FROM sessions WHERE id = ANY ($1::uuid[])
