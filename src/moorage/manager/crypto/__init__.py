"""The manager's certificate authority, key pairs and signatures: cryptography without storage."""
