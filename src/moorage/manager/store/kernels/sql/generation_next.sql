-- The next generation. The lock is shared: nothing is drawn while generation_raise.sql moves the
-- sequence.
SELECT nextval('generations') AS generation FROM pg_advisory_xact_lock_shared(1735289202)
