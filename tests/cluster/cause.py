#!/usr/bin/env python3
"""Which rank failed first, on nodes whose clocks say different times. The launcher stands still while ranks die on their nodes, so that it
learns of all the deaths at once, in any order: what decides is when their agents saw them.

`cause.py BIN close`: failures 150 and 20 ms apart, 20 times each (seconds decide: by hand)."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks
from ends_lib import finish, start

c = Checks()
APART = 1.0  # seconds: far more than the error of the clocks of a bed under load
WAIT = "until [ -e $FT_RUN_DIR/go.$RANK ]; do sleep 0.02; done; ulimit -c 0; "


def there(bed, node, pid):
    """Is a process of this number (the node's own) still there, dead or not?"""
    for q in bed.all_of(node):
        try:
            with open("/proc/%d/status" % q) as f:
                if [l.split()[-1] for l in f if l.startswith("NSpid:")] == [str(pid)]:
                    return True
        except OSError:
            pass
    return False


def cascade(bed, job, what, one, others, first=(2,), apart=APART):
    """Rank 2 ends by `one`, the others by `others`; those of `first` die first. The cause must be rank 2, status 3."""
    p = start(bed, job, "--", "sh", "-c", WAIT + "if [ $RANK = 2 ]; then %s; else %s; fi" % (one, others))
    ranks = lambda: [e for e in bed.events(p) if e["ev"] == "rank_started"]
    if not c.ok(bed.until(lambda: len(ranks()) == 4, 120), what + ": four ranks run"):
        p.kill()
        return
    folder = "%s/runs/%s" % (bed.work, bed.events(p)[0]["run"])
    pids = {e["rank"]: (e["node"], e["pid"]) for e in ranks()}
    os.kill(p.pid, signal.SIGSTOP)
    for group in (first, [r for r in range(4) if r not in first]):
        for r in group:
            bed.write("%s/go.%d" % (folder, r), "")
        c.ok(bed.until(lambda: not any(there(bed, *pids[r]) for r in group), 60), "%s: ranks %s are dead" % (what, group))
        time.sleep(apart)
    os.kill(p.pid, signal.SIGCONT)
    finish(p)
    c.eq(p.rc, 3, what, p)
    c.has(p.err, "rank 2 on node03 failed with exit status 3", what, p)
    c.eq(sorted((e["rank"], e["consequence"]) for e in bed.events(p) if e["ev"] == "rank_exit"), [(0, True), (1, True), (2, False), (3, True)], what + ": consequences", p)
    c.eq(bed.ps_within(90), [], what + ": left behind")
    return p


def clocks(bed):
    """What the nodes' clocks say beside the head's: [(wall, monotonic)], seconds."""
    ask = ["python3", "-c", "import time; print(time.time(), time.monotonic())"]
    r = bed.run("ftlaunch", "run", "-q", bed.work + "/job.ini", "--", *ask)
    c.eq(r.rc, 0, "asking for the time", r)
    rows = sorted(l.split("] ") for l in r.out.splitlines())
    return [tuple(float(x) - y() for x, y in zip(l[1].split(), (time.time, time.monotonic))) for l in rows]


def main(bed):
    job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[launch]\nheartbeat = 30s\n[nodes]\nnode[01-04] = slots=1\n")
    if "close" in sys.argv:
        for what, apart, others in (("2a", 0.15, "exit 9"), ("2b", 0.02, "exit 9"), ("2c", 0.15, "kill -ABRT $$")):
            for i in range(20):
                cascade(bed, job, "%s run %d" % (what, i), "exit 3", others, apart=apart)
        return
    cascade(bed, job, "2a", "exit 3", "exit 9")
    cascade(bed, job, "2c", "exit 3", "kill -ABRT $$")
    cascade(bed, job, "2e: those of 69 are first", "exit 3", "exit 69", first=(0, 1, 3))
    # 2d: the wall clock of node01 is 5 s ahead, then that of node03, where the cause is; their monotonic clocks differ by hours
    shift = os.path.join(os.path.dirname(bed.bin), "tests", "cluster", "libwall_ahead.so")
    for node in ("node01", "node03"):
        back = bed.sshd(node, "SetEnv LD_PRELOAD=%s WALL_AHEAD=5" % shift)
        walls, monotonic = zip(*clocks(bed))
        at = bed.names.index(node)
        c.ok(walls[at] > max(w for i, w in enumerate(walls) if i != at) + 2, "the wall clock of %s is ahead" % node, walls)
        if bed.clocks:
            c.ok(all(3500 < b - a < 3700 for a, b in zip(monotonic, monotonic[1:])), "monotonic clocks differ", monotonic)
        cascade(bed, job, "2d: %s is 5 s ahead" % node, "exit 3", "exit 9")
        back()
    if not bed.clocks:
        print("note: this kernel has no time namespaces: the monotonic clocks of the nodes were equal")


with Bed(4) as bed:
    main(bed)
sys.exit(c.end())
