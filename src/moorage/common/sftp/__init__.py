"""SFTP: the wire format, and a server confined to one directory."""

# `ExecRequest.files`: a server of the files of a session, whose id is the path.
SFTP = "sftp"
