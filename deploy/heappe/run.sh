#!/bin/bash
# Executable of the command template. HEAppE calls it in the job's directory:
#   run.sh %%{args_b64} %%{args_b64_2} %%{args_b64_3} %%{args_b64_4}
# MOORAGE_PYTHON, and what makes engines available (modules, containers, virtual environments), are set in
# env.sh beside this file.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
umask 077
if [ -f "$here/env.sh" ]; then
    # shellcheck source=/dev/null
    . "$here/env.sh"
fi
exec "${MOORAGE_PYTHON:-python3}" "$here/moorage_job.py" progress.txt "$@"
