#!/usr/bin/env python3
"""R8: the same ranks as 1 x 4 and as 2 x 2 hosts (and otherwise cut) compute the same bits: metrics, weights, moments, state hash.

    hosts.py BIN

Hosts differ by NODE_RANK: ranks of one host meet in shared memory, of two over TCP."""
import os
import shutil
import sys
import tempfile

import ranks

BIN = os.path.abspath(sys.argv[1])
HOSTS = {"1x4": [0, 0, 0, 0], "2x2": [0, 0, 1, 1], "2x2 alternating": [0, 1, 0, 1], "4x1": [0, 1, 2, 3]}
LAYOUTS = ((1, 4), (2, 2))  # tensor, data
failed = []
work = tempfile.mkdtemp(prefix="ft-hosts-")
for tensor, data in LAYOUTS:
    runs = {}
    for name, nodes in HOSTS.items():
        folder = "%s/%d-%s" % (work, tensor, name.replace(" ", "-"))
        job = ranks.make_job(folder, tensor, data)
        ends = ranks.finish(ranks.start_ranks(BIN + "/fttrain", job, folder, nodes))
        if any(status for status, _ in ends):
            failed.append("tensor %d, %s: %s" % (tensor, name, ends))
            continue
        runs[name] = ranks.bits_of(folder)
    first = runs.get("1x4", {})
    hashes = [v["state_hash"] for k, v in first.items() if k.endswith("manifest.json")]
    if len(hashes) != 2 or len(set(hashes)) != 2 or len([m for m in first["metrics"] if "lr" in m]) != 4:
        failed.append("tensor %d: what is compared is not there: %s, %s" % (tensor, hashes, first.get("metrics")))
    for name, bits in runs.items():
        differ = [k for k in sorted(set(first) | set(bits)) if first.get(k) != bits.get(k)]
        if differ:
            failed.append("tensor %d: %s has other bits than 1x4 in %s" % (tensor, name, differ))
    print("tensor %d, data %d: %d runs, %d files each, state hash %s" % (tensor, data, len(runs), len(first) - 1, hashes[-1:]))
shutil.rmtree(work)
print("\n".join("FAILED " + f for f in failed) or "all the same")
sys.exit(bool(failed))
