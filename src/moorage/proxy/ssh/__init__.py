"""SSH and SFTP at the proxy, for users with registered keys."""
