-- Delete up to $1 forgotten agents (see agent_forget.sql) without remaining kernels. Their
-- administrative history stays.
DELETE FROM agents WHERE id IN (
    SELECT a.id FROM agents a WHERE a.incarnation = '' AND a.status = 'LOST'
      AND NOT EXISTS (SELECT FROM kernels k WHERE k.agent_id = a.id) LIMIT $1)
  AND incarnation = ''
RETURNING id
