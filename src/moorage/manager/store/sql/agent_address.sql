-- Where the kernels of agent $1 were last reached.
SELECT address FROM agents WHERE id = $1
