UPDATE user_ssh_keys SET last_used_at = now() WHERE id = $1 RETURNING id
