"""Public key infrastructure of the links: authorities and their rotation, registration of
peers, the certificate of the web server."""
