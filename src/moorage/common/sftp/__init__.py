"""SFTP: the wire format, and a server confined to one directory."""

# `ExecRequest.files`: a server for a session's files; the path is the session's id.
SFTP = "sftp"
