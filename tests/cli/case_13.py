#!/usr/bin/env python3
"""Case 13: signals and grace."""
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
    check("ranks came up", until(lambda: r.dir and all(b"up\n" in r.log(k) for k in range(4)), 10))


r = Run(SAVER, sets=["launch.grace=15s"])
up(r)
send(r, SIG.SIGTERM)
r.wait(30)
r.check_end("13a", 143, "4 ranks ended after TERM, last after 2.")
check("13a: all steps", all(r.log(k).count(b"step") == 8 for k in range(4)))
r.check_clean("13a")

r = Run(SAVER, sets=["launch.grace=1s"])
up(r)
send(r, SIG.SIGTERM)
t = time.monotonic()
r.wait(30)
r.check_end("13b", 143, "ranks 0-3 cut by KILL")
check("13b: at the end of the grace", 0.9 < time.monotonic() - t < 4, time.monotonic() - t)
check("13b: killed event", len(r.events("killed")) == 1)
r.check_clean("13b")

r = Run(SAVER, sets=["launch.grace=15s"])
up(r)
send(r, SIG.SIGINT)
time.sleep(0.5)
t = time.monotonic()
send(r, SIG.SIGINT)
r.wait(30)
r.check_end("13c", 130, "stopped by SIGINT")
check("13c: gone at once", time.monotonic() - t < 2, time.monotonic() - t)
r.check_clean("13c")

COUNTER = [sys.executable, "-S", "-c", """
import os, signal, time
n = [0]
def count(*a): n[0] += 1
signal.signal(signal.SIGUSR1, count)
print("up", flush=True)
end = time.monotonic() + 2.5
while time.monotonic() < end: time.sleep(0.02)
print("got", n[0], flush=True)
"""]
import shlex
behind = shell(shlex.join(COUNTER) + '; echo "after $?"')
for name, program in (("13d", COUNTER), ("13d behind bash", behind)):
    r = Run(program)
    up(r)
    send(r, SIG.SIGUSR1)
    time.sleep(0.6)
    send(r, SIG.SIGUSR1)
    r.wait(30)
    r.check_end(name, 0)
    check(name + ": exactly two per rank", all(b"got 2\n" in r.log(k) for k in range(4)), [r.log(k) for k in range(4)])
    if "bash" in name:
        check(name + ": bash survives", all(b"after 0\n" in r.log(k) for k in range(4)))
    r.check_clean(name)

# a process behind `bash -c` keeps the rest of the grace although bash dies of TERM at once
r = Run(shell(shlex.join(SAVER) + "; true"), sets=["launch.grace=15s"])
up(r)
send(r, SIG.SIGTERM)
r.wait(30)
r.check_end("13 wrapper", 143)
check("13 wrapper: all steps", all(r.log(k).count(b"step") == 8 for k in range(4)), [r.log(k) for k in range(4)])
r.check_clean("13 wrapper")

# TSTP stops all groups and the launcher, CONT resumes them
r = Run(shell("for i in $(seq 20); do echo tick; sleep 0.1; done"))
check("13 TSTP: up", until(lambda: r.dir and all(b"tick" in r.log(k) for k in range(4)), 10))
send(r, SIG.SIGTSTP)
stopped = until(lambda: open("/proc/%d/stat" % r.p.pid).read().rsplit(")", 1)[1].split()[0] == "T", 3)
check("13 TSTP: the launcher stops", stopped)
time.sleep(0.3)
n = [r.log(k).count(b"tick") for k in range(4)]
time.sleep(0.6)
check("13 TSTP: ranks stand still", n == [r.log(k).count(b"tick") for k in range(4)])
send(r, SIG.SIGCONT)
r.wait(30)
r.check_end("13 CONT", 0)
check("13 CONT: all ticks", all(r.log(k).count(b"tick") == 20 for k in range(4)))
r.check_clean("13 TSTP")
finish()
