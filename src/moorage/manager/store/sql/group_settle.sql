-- Move at most $1 rows of each kind from aliases to the current names of their groups. Returns how many, and which live sessions.
SELECT moved, live FROM settle_aliases($1)
