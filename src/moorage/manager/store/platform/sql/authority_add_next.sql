-- Begin a rotation of the CA to $1 (sealed key $2) at $3 by $4. No row: another one is in progress.
UPDATE link_authority SET next_certificate = $1, next_key = $2, rotated_at = $3, rotated_by = $4
WHERE next_certificate IS NULL AND retiring_certificate IS NULL
RETURNING name
