#!/usr/bin/env python3
"""Case 13: signals and grace."""
import re
from launch_lib import *

SAVER = [sys.executable, "-S", "-c", """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *a: asked.append(1))
print("up", flush=True)
while not asked: time.sleep(0.01)
for i in range(int(sys.argv[1])):
    time.sleep(0.25)
    print("step", i + 1, flush=True)
""", "8"]


def up(r):
    check("ranks came up", until(lambda: r.dir and all(b"up\n" in r.log(k) for k in range(4))))


r = Run(SAVER, sets=["launch.grace=60s"])
up(r)
send(r, SIG.SIGTERM)
r.wait()
r.check_end("13a", 143, "4 ranks ended after TERM, last after ")
last = re.search(r"last after (\d+\.\d) s", r.err)
check("13a: they had their 2 seconds", last and 2 <= float(last.group(1)), r.err)
check("13a: all steps", all(r.log(k).count(b"step") == 8 for k in range(4)))
r.check_clean("13a")

r = Run(SAVER[:-1] + ["1200"], sets=["launch.grace=1s"])  # far more than the grace, however late KILL comes
up(r)
send(r, SIG.SIGTERM)
t = time.monotonic()
r.wait()
r.check_end("13b", 143, "ranks 0-3 cut by KILL")
check("13b: not before the end of the grace", time.monotonic() - t > 0.9, time.monotonic() - t)
check("13b: killed event", len(r.events("killed")) == 1)
r.check_clean("13b")

r = Run(SAVER[:-1] + ["1200"], sets=["launch.grace=300s"])  # only the second INT ends it within our patience
up(r)
send(r, SIG.SIGINT)
check("13c: the first INT was taken", until(lambda: len(r.events("signal")) == 1))
time.sleep(0.3)  # two INTs within 50 ms are one
send(r, SIG.SIGINT)
r.wait()
r.check_end("13c", 130, "stopped by SIGINT", "ranks 0-3 cut by KILL")
r.check_clean("13c")

COUNTER = [sys.executable, "-S", "-c", """
import os, signal, time
n = [0]
def count(*a):
    n[0] += 1
    print("now", n[0], flush=True)
signal.signal(signal.SIGUSR1, count)
print("up", flush=True)
while n[0] < 2: time.sleep(0.02)
time.sleep(0.5)  # a third would come now
print("got", n[0], flush=True)
"""]
import shlex
behind = shell(shlex.join(COUNTER) + '; echo "after $?"')
for name, program in (("13d", COUNTER), ("13d behind bash", behind)):
    r = Run(program)
    up(r)
    send(r, SIG.SIGUSR1)
    check(name + ": the first came", until(lambda: all(b"now 1\n" in r.log(k) for k in range(4))))
    send(r, SIG.SIGUSR1)
    r.wait()
    r.check_end(name, 0)
    check(name + ": exactly two per rank", all(b"got 2\n" in r.log(k) for k in range(4)), [r.log(k) for k in range(4)])
    if "bash" in name:
        check(name + ": bash survives", all(b"after 0\n" in r.log(k) for k in range(4)))
    r.check_clean(name)

# a process behind `bash -c` keeps the rest of the grace although bash dies of TERM at once
r = Run(shell(shlex.join(SAVER) + "; true"), sets=["launch.grace=60s"])
up(r)
send(r, SIG.SIGTERM)
r.wait()
r.check_end("13 wrapper", 143)
check("13 wrapper: all steps", all(r.log(k).count(b"step") == 8 for k in range(4)), [r.log(k) for k in range(4)])
r.check_clean("13 wrapper")

# TSTP stops all groups and the launcher, CONT resumes them
mark = tempfile.mkdtemp(prefix="ftcase-")
folders.add(mark)
r = Run(shell("echo tick; while [ ! -e $MARK/go ]; do sleep 0.05; done; echo tock"), env={"MARK": mark})
check("13 TSTP: up", until(lambda: r.dir and all(b"tick" in r.log(k) for k in range(4))))
ranks = [e["pid"] for e in r.events("rank_started")]


def state(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


send(r, SIG.SIGTSTP)
check("13 TSTP: the launcher stops", until(lambda: state(r.p.pid) == "T"))
check("13 TSTP: all ranks stop", until(lambda: [state(pid) for pid in ranks] == ["T"] * 4), ranks)
open(os.path.join(mark, "go"), "w").close()
time.sleep(0.3)
check("13 TSTP: ranks stand still", [state(pid) for pid in ranks] == ["T"] * 4)
send(r, SIG.SIGCONT)
r.wait()
r.check_end("13 CONT", 0)
check("13 CONT: they went on", all(r.log(k) == b"tick\ntock\n" for k in range(4)))
r.check_clean("13 TSTP")
finish()
