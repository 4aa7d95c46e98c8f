-- Address at which the kernels of agent $1 were last reached, and why it dials out.
SELECT address, reach_why FROM agents WHERE id = $1
