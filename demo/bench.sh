#!/bin/sh
# Start-up time: plain exec, bwrap and ringfence in one run, in a closed network world.
set -eu
cd /workspace
bwrap='bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp true'
hyperfine --warmup 3 --shell none \
  --command-name 'plain exec' 'true' \
  --command-name 'bwrap' "$bwrap" \
  --command-name 'ringfence run --policy nist-high' 'ringfence run --policy nist-high -- true'
