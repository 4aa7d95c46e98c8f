-- Returns the weight of a unit, in 1 / 2,304,000,000 of what its price is for. All units have that
-- fraction in common, so costs add up exactly.
CREATE OR REPLACE FUNCTION ledger_weight(u text)
RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN u IN ('gpu', 'cpu', 'node') THEN 640
            WHEN u = 'memory' THEN 625
            ELSE 2304 END::numeric
$$;
