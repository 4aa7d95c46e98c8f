#!/usr/bin/env bash
# Everything that Moorage does with an NVIDIA GPU, on a bare machine without a network, from the folder that
# `make gpu-kit` makes: bash build/gpu-kit/run.sh [--rehearse] [--only PART,PART]
#
# --rehearse: on a machine without a GPU; what a part cannot do there is told as not measured.
# PYTHON: a Python 3.12 for the platform. TORCH_PYTHON: one that imports torch, for the programs on the GPU.
# OUT: folder of the results (default: gpu-kit-results beside the kit). KIT_LIMIT_S: seconds in all (540).
set -u
started=$(date +%s)
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ ! -e "$kit/wheels.tar.xz" ]; then
    echo "$kit is no kit: run \`make gpu-kit\`, then build/gpu-kit/run.sh" >&2
    exit 2
fi
export OUT=${OUT:-$(dirname "$kit")/gpu-kit-results}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
export KIT_LIMIT_S=${KIT_LIMIT_S:-540}
export PATH="$PATH:/usr/local/nvidia/bin"

works() { [ -n "$1" ] && "$1" -c "$2" >/dev/null 2>&1; }
is_312='import sys, lzma, venv; sys.exit(sys.version_info[:2] != (3, 12))'
for python in "${PYTHON:-}" python3 python3.12 /opt/torch/.venv/bin/python3 ""; do
    works "$python" "$is_312" && break
done
for torch_python in "${TORCH_PYTHON:-}" python3 /opt/torch/.venv/bin/python3 "$python" ""; do
    works "$torch_python" 'import torch, aiohttp' && break
done
if [ -z "$python" ]; then
    echo "no Python 3.12 was found: set PYTHON" | tee "$OUT/install.log" >&2
    exit 2
fi
export TORCH_PYTHON=$torch_python
driver='import ctypes; ctypes.CDLL("libcuda.so.1"); ctypes.CDLL("libnvidia-ml.so.1")'
libraries=$(ls -d /usr/local/nvidia/lib64 /usr/local/nvidia/lib 2>/dev/null | paste -sd:)
if ! works "$python" "$driver" && [ -n "$libraries" ]; then
    export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "the driver's libraries were not on the loader's path: LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
fi

# The embedded Postgres does not run as root: another user must be able to pass through.
KIT_WORK=$(mktemp -d /tmp/moorage-gpu-kit.XXXXXX)
export KIT_WORK
chmod 755 "$KIT_WORK"
install() {
    set -e
    echo "platform: $python ($("$python" --version 2>&1)); programs on the GPU: ${torch_python:-none}"
    "$python" - "$kit" "$KIT_WORK" <<'PYTHON'
import sys, tarfile
kit, work = sys.argv[1:]
for name in ("wheels", "tree"):
    with tarfile.open(f"{kit}/{name}.tar.xz") as archive:
        archive.extractall(f"{work}/{name}", filter="data")
PYTHON
    "$python" -m venv --without-pip "$KIT_WORK/venv"
    # pip runs from its wheel: a bare Python may lack ensurepip. What is set for pip here does not matter.
    env -i PATH="$PATH" HOME="$KIT_WORK" PYTHONPATH="$(echo "$KIT_WORK"/wheels/pip-*.whl)" PIP_CONFIG_FILE=/dev/null \
        "$KIT_WORK/venv/bin/python" -m pip install --quiet --no-index --no-deps --no-cache-dir --no-compile \
        --disable-pip-version-check --root-user-action=ignore \
        "$KIT_WORK"/tree/wheel/*.whl $(ls "$KIT_WORK"/wheels/*.whl | grep -v '/pip-')
    "$KIT_WORK/venv/bin/python" -m moorage --version
}
( install ) >"$OUT/install.log" 2>&1
code=$?
cat "$OUT/install.log"
if [ $code -ne 0 ]; then
    echo "the installation failed" >&2
    exit 2
fi
echo "installed after $(($(date +%s) - started)) s"
export KIT_STARTED=$started
cd "$KIT_WORK/tree" || exit 2
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
"$KIT_WORK/venv/bin/python" -m tests.gpu.kit "$@"
code=$?
rm -rf "$KIT_WORK"
exit $code
