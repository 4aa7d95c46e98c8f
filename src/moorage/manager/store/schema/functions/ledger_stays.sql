-- Refuses a change of the ledger.
CREATE OR REPLACE FUNCTION ledger_stays()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'records of the ledger are never changed; a correction is a record of its own';
END
$$;
