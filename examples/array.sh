#!/bin/sh
# A program run once for each index, two at a time, and element by element after it: sh array.sh
# `moorage` finds the platform as in docs/cli.md. The elements 2 and 5 fail the first time.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Nothing is printed of the elements; the exit code is that of the first one that failed.
moorage run --array 0-6%2 --name sweep --cpus 0.1 --memory 16MiB -- sh -c '
    echo "part $JOB_COMPLETION_INDEX of $JOB_ARRAY_COUNT"
    case $JOB_COMPLETION_INDEX in 2|5) test -e '"$work"'/mended;; esac' || echo "exit code $?"

# One line for the array, and one element.
moorage ps --all --search sweep
moorage logs 'sweep[3]'
moorage logs sweep_4
moorage logs 'sweep[0-1]'
moorage pipelines describe sweep --elements

# Only the elements that failed run again.
touch "$work/mended"
moorage pipelines retry sweep
until moorage pipelines list -o json | grep -q '"state": *"succeeded"'; do sleep 1; done
moorage describe sweep

# Each element of the second array follows the one with its index (Slurm's aftercorr).
cat > "$work/pairs.yaml" <<'END'
name: pairs
steps:
  - name: make
    array: 1,4-8:2
    spec: {command: [sh, -c, "test $JOB_COMPLETION_INDEX != 6"], resources: {cpu: 0.1, mem: 16MiB}}
  - name: use
    array: 1,4-8:2
    after: [{step: make, of: each}]
    spec: {command: [sh, -c, "echo $JOB_COMPLETION_INDEX"], resources: {cpu: 0.1, mem: 16MiB}}
  - name: alarm
    after: [{step: make, on: failure}]
    spec: {command: [echo, one failed], resources: {cpu: 0.1, mem: 16MiB}}
END
moorage pipelines submit -f "$work/pairs.yaml"
until moorage pipelines describe pairs | grep -q ': failed, 9/9'; do sleep 1; done
moorage describe pairs

# Elements and whole arrays are stopped by name.
moorage run --array 0-9%3 --name long --cpus 0.1 --memory 16MiB --detach -- sleep 600
moorage stop 'long[3-5]'
moorage stop long
moorage describe long
