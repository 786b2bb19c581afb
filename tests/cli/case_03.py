#!/usr/bin/env python3
"""Case 3: launcher, agent or keeper killed with SIGKILL; TERM, INT, HUP to the launcher. Every rank has setsid children, one of
them without environment."""
from launch_lib import *

PROGRAM = shell("setsid sleep $LT_SLEEP & env -i setsid sleep $LT_SLEEP & sleep $LT_SLEEP")


def up():
    r = Run(PROGRAM)
    r.sleepers(12)
    return r


def after(r, name):
    """A following run on the same node starts normally."""
    follow = Run(["true"], folder=r.folder)
    follow.before.add("runs")
    check(name + ": a following run", follow.wait() == 0, follow.err)


r = up()
r.p.kill()
r.wait()
r.check_clean("3a")
check("3a: no run_end of the dead launcher", not r.events("run_end"))
after(r, "3a")

for name, victims in (("3b agent", [1]), ("3c keeper", [0]), ("3c both", [1, 0])):
    r = up()
    pids = r.agent()
    check(name + ": found", bool(pids))
    for v in victims:
        kill(pids[v])
    r.wait()
    r.check_end(name, 125, "lost agent on localhost")
    check(name + ": cause", r.events("run_end")[0]["cause"]["kind"] == "node", r.events("run_end"))
    check(name + ": node_lost", len(r.events("node_lost")) == 1)
    r.check_clean(name)
    after(r, name)

for number, status in ((SIG.SIGTERM, 143), (SIG.SIGINT, 130), (SIG.SIGHUP, 129)):
    r = up()
    send(r, number)
    r.wait()
    r.check_end("3d %d" % status, status, "stopped by %s" % number.name, "4 ranks ended after TERM")
    r.check_clean("3d %d" % status)
    check("3d: signal event", [e["number"] for e in r.events("signal")] == [int(number)])

# a run in another network namespace sees no leases of this one, and no run here is taken for a dead one there
there = ["unshare", "--net"]
if subprocess.run(there + ["true"], stderr=subprocess.DEVNULL).returncode:
    print("3e: skipped, network namespaces are not allowed here")
else:
    r = up()
    elsewhere = tempfile.mkdtemp(prefix="ftcase-")
    folders.add(elsewhere)
    other = subprocess.run(there + [FTLAUNCH, "run", "-q", "-n", "1", "--", "true"], cwd=elsewhere, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    check("3e: a run in another network namespace", other.returncode == 0, other)
    send(r, SIG.SIGTERM)
    r.wait()
    r.check_end("3e", 143, "stopped by SIGTERM", "4 ranks ended after TERM")
    r.check_clean("3e")
finish()
