"""Certificate authority, key pairs and signatures of the manager: cryptography without storage."""
