-- The next generation above $1 and above every earlier one. The lock keeps the sequence from moving
-- backwards when another manager draws a number or raises the sequence at the same time.
-- Generations start at the time, in milliseconds, at which a database was created, and grow more
-- slowly than time, so none is ahead of the clock by more than a year: a peer that claims otherwise
-- cannot exhaust the numbers.
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1735289202)),
     raised AS MATERIALIZED (
    SELECT setval('generations', greatest(
        (SELECT last_value FROM generations),
        least($1::bigint,
              (extract(epoch FROM now() + interval '1 year') * 1000)::bigint))) AS at FROM lock)
SELECT nextval('generations') AS generation FROM raised
