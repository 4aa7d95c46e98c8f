-- Whether a device is meant by a name that people write: the words of the name follow each other in
-- the name that its driver reports. H100 means "NVIDIA H100 80GB HBM3"; L4 does not mean L40.
CREATE OR REPLACE FUNCTION device_named(given text, device text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT position(' ' || trim(regexp_replace(lower(given), '[^[:alnum:]]+', ' ', 'g')) || ' '
                IN ' ' || trim(regexp_replace(lower(device), '[^[:alnum:]]+', ' ', 'g')) || ' ') > 0
       AND given ~ '[[:alnum:]]'
$$;
