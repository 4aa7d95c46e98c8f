-- Peer $1 has connected with its newest key $2: retire the key that it had before. Only the newest
-- eight retired keys are kept, because all older ones have expired.
UPDATE link_peers SET renewed_from = NULL,
    retired_keys = (retired_keys || renewed_from)[greatest(1, cardinality(retired_keys) - 6):]
WHERE id = $1 AND public_key = $2 AND renewed_from <> $2
RETURNING id
