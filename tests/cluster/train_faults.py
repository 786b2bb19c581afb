#!/usr/bin/env python3
"""Training on 4 nodes x 2 ranks goes on after every kind of loss: a node, the launcher; with a spare, and on fewer nodes; --full: a rank
and an agent, too (tests/campaign/losses). Losses and weights at the end are those of a run that nobody disturbed, bit for bit."""
import glob
import hashlib
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks, send
from ends_lib import finish, start

c = Checks()
SRC = os.environ["FT_SOURCE"]
STEPS = 15


def weights(folder):
    out = {}
    for f in sorted(glob.glob(folder + "/*.safetensors")):
        with open(f, "rb") as g:
            out[os.path.basename(f)] = hashlib.sha256(g.read()).hexdigest()
    return out


def newest(bed):
    return max(glob.glob(bed.work + "/runs/*"), key=os.path.getmtime, default=None)


def metrics(run):
    """The last line of each step: a step that was done again counts once."""
    out = {}
    try:
        with open(run + "/metrics.jsonl") as f:
            for l in f:
                if l.endswith("\n"):
                    m = json.loads(l)
                    if "loss" in m:
                        out[m["step"]] = (m["loss"], m["grad_norm"])
    except OSError:
        pass
    return out


with Bed(5) as bed:
    with open(SRC + "/examples/01_laptop/data/train.jsonl") as f:
        data = bed.write("train.jsonl", "".join(f.readlines()[:96]))
    job = bed.write("job.ini", """[cluster]
transport = ssh
[ssh]
timeout = 5s
[nodes]
node[01-04] = slots=2
node05 = slots=2 tags=spare
[launch]
restarts = 5
grace = 5s
heartbeat = 1s
cooldown = 0
[model]
path = %s/examples/01_laptop/model
precision = fp32
[data]
train = %s
seq_len = 256
packing = no
[train]
method = full
steps = %d
global_batch = 16
micro_batch = 1
lr = 1e-3
schedule = cosine
warmup = 2
clip = 1
device = cpu
[checkpoint]
every = 3
[export]
dtype = fp32
""" % (SRC, data, STEPS))

    def begin(*more):
        before = newest(bed)
        p = start(bed, job, *more)
        c.ok(bed.until(lambda: p.poll() is not None or (newest(bed) != before and len(metrics(newest(bed))) >= 4), 120), "four steps are done")
        return p, newest(bed)

    def same(what, p, run, fewer=False):
        if not c.eq(p.rc, 0, what, p):
            return
        if not fewer:
            c.eq(metrics(run), undisturbed[0], "losses after " + what)
            c.eq(weights(run + "/export"), undisturbed[1], "weights after " + what)
        else:  # other sums: equal to rounding
            got, want = metrics(run), undisturbed[0]
            c.eq(sorted(got), sorted(want), "steps after " + what)
            c.ok(all(abs(got[s][0] / want[s][0] - 1) < 1e-5 for s in got), "losses after " + what, got, want)
        c.eq(bed.ps_within(90), [], "left behind after " + what)
        with open(run + "/events.jsonl") as f:
            ev = [json.loads(l) for l in f]
        c.ok(any(e["attempt"] > 0 for e in ev if e["ev"] == "rank_started"), "it was started again: " + what, ev[-3:])
        return ev

    def pid_on(node, text):
        return [int(l.split()[1]) for l in bed.ps(node) if text in l]

    r = bed.run("ftlaunch", "run", job, timeout=200)
    c.eq(r.rc, 0, "an undisturbed run", r)
    undisturbed = metrics(newest(bed)), weights(newest(bed) + "/export")
    c.ok(len(undisturbed[0]) == STEPS and len(undisturbed[1]) >= 1, "it trained", undisturbed)

    if "--full" in sys.argv:
        p, run = begin()
        send(pid_on("node02", "fttrain")[0], signal.SIGKILL)
        same("kill -9 of a rank", finish(p, 200), run)
        p, run = begin()
        send(bed.agent("node03"), signal.SIGKILL)
        ev = same("kill -9 of an agent", finish(p, 200), run)
        c.ok(ev and [e["nodes"][2] for e in ev if e["ev"] == "replan"] == ["node05"], "the spare has its place", p)

    p, run = begin()
    bed.kill("node04")
    ev = same("a node without power", finish(p, 200), run)
    c.ok(ev and [e["nodes"] for e in ev if e["ev"] == "replan"] == [["node01", "node02", "node03", "node05"]], "the spare has its place", p)
    bed.boot("node04")

    p, run = begin()
    os.kill(p.pid, signal.SIGKILL)
    finish(p)
    c.eq(bed.ps_within(90), [], "left behind by a launcher that was killed")
    r = bed.run("ftlaunch", "run", "--continue", os.path.basename(run), timeout=200)
    same("kill -9 of the launcher", r, run)

    p, run = begin("--set", "cluster.exclude=node05", "--set", "launch.min_nodes=2")
    bed.kill("node01")
    ev = same("a node without power and no spare", finish(p, 200), run, fewer=True)
    c.has(p.err, "goes on with 4 ranks on 2 nodes (min_nodes = 2)", "three nodes hold 6 ranks, 4 divide the batch", p)
    c.ok(ev and [e["mesh"] for e in ev if e["ev"] == "replan"] == [{"tp": 1, "pp": 1, "dp": 4}], "the layout", ev)
sys.exit(c.end())
