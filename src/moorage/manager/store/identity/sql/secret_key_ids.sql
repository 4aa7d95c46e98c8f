SELECT DISTINCT key_id FROM secrets ORDER BY key_id
