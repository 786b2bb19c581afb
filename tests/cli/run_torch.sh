#!/bin/sh
# A plain PyTorch script (gloo) runs unchanged on four ranks. Skips, with the reason, where /usr/bin/python3 has no torch.
set -u
bin=$1
if ! /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null; then
    echo "skipped: /usr/bin/python3 has no torch (Debian's python3-torch)"
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
timeout 400 "$bin/ftlaunch" run -n 4 -- /usr/bin/python3 "$FT_SOURCE/tests/cli/torch_gloo.py" >out 2>err
status=$?
if [ $status -ne 0 ]; then
    echo "exit $status"
    cat err
    exit 1
fi
for r in 0 1 2 3; do
    grep -q "^\[$r [^]]*\] rank $r of 4: sum 10$" out || {
        echo "no line of rank $r:"
        cat out
        exit 1
    }
done
