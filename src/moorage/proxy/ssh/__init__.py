"""SSH and SFTP in the proxy, for users with registered keys."""
