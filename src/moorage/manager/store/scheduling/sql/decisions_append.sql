-- Append a segment of the decision log. A segment that is sent twice is stored once.
INSERT INTO decisions (resource_group, from_at, to_at, term, run, number, format, whole, passes,
                       dropped, size, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, octet_length($11::bytea), $11::bytea)
ON CONFLICT (run, resource_group, number) DO NOTHING
