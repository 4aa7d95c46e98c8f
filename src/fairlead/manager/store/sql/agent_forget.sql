-- An agent ($1) that is silent is nobody's any more: whoever comes under its id is welcome. What it held stays fenced
-- until somebody does. No row for one that is alive, or not known. An empty incarnation is no agent's: it is not listed.
UPDATE agents SET status = 'LOST', identity = '', incarnation = '', stream = 0
WHERE id = $1 AND status <> 'ALIVE' AND incarnation <> ''
RETURNING id
