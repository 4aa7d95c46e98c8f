"""Public key infrastructure of the links: authorities and their rotation, registration of peers,
and the web server's certificate."""
