"""SFTP: the wire format, and a server that is confined to one directory."""

# `ExecRequest.files`: a server of the files of a session, whose id is the path.
SFTP = "sftp"
