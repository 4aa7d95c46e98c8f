DELETE FROM sign_in_attempts WHERE name = $1
