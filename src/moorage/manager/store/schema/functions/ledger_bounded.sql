-- Limits an amount to what fits into a bigint.
CREATE OR REPLACE FUNCTION ledger_bounded(amount numeric)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
SELECT least(greatest(amount, -9223372036854775807), 9223372036854775807)::bigint
$$;
