-- The database's time, and how many jumps of its clock were corrected so far.
SELECT now() AS now,
       coalesce((SELECT clock_jumps FROM leases WHERE name = 'leader'), 0) AS clock_jumps
