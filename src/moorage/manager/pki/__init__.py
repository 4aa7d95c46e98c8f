"""Public key infrastructure of the links: certificate authority, registration, SSH key pairs."""
