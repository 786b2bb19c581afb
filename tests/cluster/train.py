#!/usr/bin/env python3
"""Training over ssh (the files of examples/01_laptop and 03_ssh): losses and weights are those of the same ranks on one machine, bit for bit."""
import glob
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks

c = Checks()
SRC = os.environ["FT_SOURCE"]


def weights(folder):
    return {os.path.basename(f): hashlib.sha256(open(f, "rb").read()).hexdigest() for f in sorted(glob.glob(folder + "/*"))}


def losses(run):
    with open(run + "/metrics.jsonl") as f:
        return [{k: v for k, v in json.loads(l).items() if k in ("step", "loss", "grad_norm", "tokens", "eval")} for l in f]


with Bed(4) as bed:
    data, model = SRC + "/examples/01_laptop/data", SRC + "/examples/01_laptop/model"
    for name, n in (("train", 96), ("valid", 16)):
        with open("%s/%s.jsonl" % (data, name)) as f:
            bed.write(name + ".jsonl", "".join(f.readlines()[:n]))
    sets = {"model.path": model, "data.train": bed.work + "/train.jsonl", "data.valid": bed.work + "/valid.jsonl", "train.epochs": "1", "train.warmup": "1",
            "train.global_batch": "16", "train.micro_batch": "4", "eval.every": "3", "export.dtype": "fp32"}

    def train(what, *files, **more):
        s = dict(sets, **{k.replace("__", "."): v for k, v in more.items()})
        s.update({"launch.run_dir": "%s/runs-%s" % (bed.work, what), "export.dir": "%s/model-%s" % (bed.work, what)})
        argv = [x for k, v in s.items() for x in ("--set", "%s=%s" % (k, v))]
        r = bed.run("ftlaunch", "run", SRC + "/examples/01_laptop/job.ini", *files, *argv, timeout=350)
        c.eq(r.rc, 0, what, r)
        c.eq(bed.ps_within(90), [], "left behind after " + what)
        return losses(glob.glob("%s/runs-%s/*" % (bed.work, what))[0]), weights("%s/model-%s" % (bed.work, what))

    two = train("two-local")
    ssh = train("two-ssh", SRC + "/examples/03_ssh/cluster.ini")
    c.ok(len(two[0]) >= 6 and "model.safetensors" in two[1], "the run on one machine trained", two)
    c.eq(ssh[0], two[0], "losses and norms of 2 ranks over ssh")
    c.eq(ssh[1], two[1], "weights of 2 ranks over ssh")
    four = train("four-local", nodes__localhost="slots=4", parallel__data="4")
    nodes = bed.write("four.ini", "[cluster]\ntransport = ssh\ninclude = node[01-02]\n[nodes]\nnode[01-02] = slots=2\n")
    ssh = train("four-ssh", nodes, parallel__data="4")
    c.eq(ssh[0], four[0], "losses and norms of 2 nodes x 2 ranks over ssh")
    c.eq(ssh[1], four[1], "weights of 2 nodes x 2 ranks over ssh")
    cut = {"parallel__tensor": "2", "parallel__data": "2"}  # tensor ranks lie inside a node
    local, ssh = train("cut-local", nodes__localhost="slots=4", **cut), train("cut-ssh", nodes, **cut)
    c.eq(ssh[0], local[0], "losses and norms of 2 nodes x 2 tensor ranks over ssh")
    c.eq(ssh[1], local[1], "weights of 2 nodes x 2 tensor ranks over ssh")
    c.ok(max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(local[0], four[0])) < 1e-2, "losses at tensor 2 near those at data 4", (local[0], four[0]))
sys.exit(c.end())
