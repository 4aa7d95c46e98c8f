-- Record that a backup was written to file $1 of host $2 ($3: bytes).
INSERT INTO backups (file, host, bytes) VALUES ($1, $2, $3)
