-- The database's time, and the number of corrected jumps of its clock so far.
SELECT now() AS now,
       coalesce((SELECT clock_jumps FROM leases WHERE name = 'leader'), 0) AS clock_jumps
