DELETE FROM user_ssh_keys WHERE id = $1 RETURNING id
