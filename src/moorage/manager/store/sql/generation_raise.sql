-- The next generation above $1 and above every earlier one. The lock keeps the sequence from moving backwards when another
-- manager draws or raises at the same time.
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1735289202)),
     raised AS MATERIALIZED (
    SELECT setval('generations', greatest((SELECT last_value FROM generations), $1::bigint)) AS at FROM lock)
SELECT nextval('generations') AS generation FROM raised
