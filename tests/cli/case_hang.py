#!/usr/bin/env python3
"""Hangs: found by FT_PROGRESS, the odd one out named, stacks kept, status 124; deadline; slow steps; restarts."""
from launch_lib import *

STEPS = r"""
import os, signal, socket, sys, time
rank = int(os.environ["RANK"])
p = os.fdopen(int(os.environ["FT_PROGRESS"]), "w", buffering=1)
a, b = socket.socketpair()
for step in range(1, 6):  # at once: a rank that waits for its turn on a busy machine must not look like a hang
    p.write("%d\n" % step)
if sys.argv[1] == "stop" and rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
if sys.argv[1] == "spin" and rank == 2:
    while True: pass
if sys.argv[1] == "behind" and rank == 3: a.recv(1)
if sys.argv[1] == "behind": p.write("6\n")
a.recv(1)
"""
for how, odd, words in (("stop", 1, ["rank 1 on localhost stopped at step 5 (state T), 3 ranks wait in recv"]), ("spin", 2, ["rank 2 on localhost stopped at step 5 (state R)"]),
                        ("behind", 3, ["rank 3 on localhost stopped at step 5"]), ("all", None, ["no one is odd"])):
    r = Run([sys.executable, "-S", "-c", STEPS, how], sets=["launch.hang_timeout=3s", "launch.grace=2s"])
    r.wait()
    r.check_end("hang " + how, 124, *words)
    hang = r.events("hang")
    check("hang %s: event" % how, len(hang) == 1 and hang[0]["rank"] == odd and hang[0]["step"] == 5, hang)
    stacks = os.path.join(r.dir, "stacks")
    names = sorted(os.listdir(stacks)) if os.path.isdir(stacks) else []
    check("hang %s: stacks of all" % how, names == ["0.txt", "1.txt", "2.txt", "3.txt"], names)
    for n in names:
        with open(os.path.join(stacks, n)) as f:
            text = f.read()
        check("hang %s: %s" % (how, n), "thread " in text and "state " in text and "CPU" in text, text[:300])
    check("hang %s: cause" % how, r.events("run_end")[0]["cause"]["kind"] == "hang")
    check("hang %s: first_step" % how, sorted(e["rank"] for e in r.events("first_step")) == [0, 1, 2, 3])
    r.check_clean("hang " + how)

# QUIT: states and stacks of all, and nothing ends
r = Run(shell("echo 5 >&$FT_PROGRESS; sleep $LT_SLEEP"), sets=["launch.grace=2s"])
check("QUIT: the ranks run", until(lambda: r.dir and len(r.events("first_step")) == 4))
send(r, SIG.SIGQUIT)
check("QUIT: states of all", until(lambda: all("rank %d on localhost: running, pid" % k in r.err and "rank %d: state " % k in r.err for k in range(4))), r.err)
stacks = lambda: sorted(os.listdir(os.path.join(r.dir, "stacks"))) if os.path.isdir(os.path.join(r.dir, "stacks")) else []
check("QUIT: stacks of all", until(lambda: stacks() == ["0.txt", "1.txt", "2.txt", "3.txt"]), stacks())
check("QUIT: nothing ends", r.p.poll() is None and not r.events("stop"))
send(r, SIG.SIGTERM)
r.wait()
r.check_end("QUIT, then TERM", 143)
r.check_clean("QUIT")

# off before every rank has reported a step, and when hang_timeout is 0
for sets, program in ((["launch.hang_timeout=500ms"], shell('[ $RANK = 0 ] || echo 1 >&$FT_PROGRESS; sleep 2')), (["launch.hang_timeout=0"], shell('echo 1 >&$FT_PROGRESS; sleep 2'))):
    r = Run(program, sets=sets)
    r.wait()
    r.check_end("no hang", 0)

r = Run(shell("sleep $LT_SLEEP"), sets=["launch.deadline=3s"])
r.wait()
r.check_end("deadline", 124, "the deadline of 3 s passed")
check("deadline: cause", r.events("run_end")[0]["cause"]["kind"] == "deadline")
r.check_clean("deadline")

r = Run(shell('if [ $RANK = 0 ]; then sleep 0.3; exit 0; fi; sleep $LT_SLEEP'), sets=["launch.end=rank0"])
r.wait()
r.check_end("end = rank0", 0)
r.check_clean("end = rank0")

mark = tempfile.mkdtemp(prefix="ftcase-")
folders.add(mark)
r = Run([sys.executable, "-S", "-c", r"""
import os, time
p = os.fdopen(int(os.environ["FT_PROGRESS"]), "w", buffering=1)
if os.environ["RANK"] != "2":  # these are done at once: a step takes as long as rank 2 does
    for step in range(1, 12): p.write("%d\n" % step)
    open(os.environ["MARK"] + "/" + os.environ["RANK"], "w").close()
    os._exit(0)
while len(os.listdir(os.environ["MARK"])) < 3: time.sleep(0.01)
longest = 0.05
for step in range(1, 12):
    begin = time.monotonic()
    time.sleep(30 * longest if step == 9 else 0.05)
    longest = max(longest, time.monotonic() - begin)  # as slow as the machine is: ten times the median it must be
    p.write("%d\n" % step)
"""], env={"MARK": mark})
r.wait()
r.check_end("slow step", 0)
slow = r.events("slow_step")
check("slow step: rank and step", (2, 9) in [(e["rank"], e["step"]) for e in slow], slow)

# restarts
mark = tempfile.mkdtemp(prefix="ftcase-")
folders.add(mark)
r = Run(shell('echo attempt $FT_RESTART port $MASTER_PORT; echo $((FT_RESTART + 1)) >&$FT_PROGRESS; touch $MARK/$FT_RESTART.$RANK; '
              'while [ $(ls $MARK | grep -c "^$FT_RESTART[.]") != 4 ]; do sleep 0.05; done; [ $FT_RESTART = 2 ] || [ $RANK != 1 ] || { sleep 0.5; exit 9; }; [ $FT_RESTART = 2 ] || sleep $LT_SLEEP'),
        sets=["launch.restarts=5"], env={"MARK": mark})
r.wait()
r.check_end("restarts", 0)
log = r.log(1).decode().splitlines()
check("restarts: three attempts", [line.split()[1] for line in log] == ["0", "1", "2"], log)
check("restarts: new ports", len({line.split()[3] for line in log}) == 3, log)
check("restarts: events", len(r.events("restart")) == 2 and r.events("run_end")[0]["attempt"] == 2)
r.check_clean("restarts")
r = Run(shell('[ $RANK != 1 ] || exit 9; sleep $LT_SLEEP'), sets=["launch.restarts=5"])
r.wait()
r.check_end("restarts without progress", 9, "without progress")
check("restarts without progress: two attempts", len(r.events("restart")) == 1)
r.check_clean("restarts without progress")
r = Run(shell('[ $RANK != 1 ] || exit 2; sleep $LT_SLEEP'), sets=["launch.restarts=5"])
r.wait()
r.check_end("status 2 is final", 2)
check("status 2 is final: one attempt", len(r.events("restart")) == 0)
r = Run(["no-such-program"], sets=["launch.restarts=5"])
r.wait()
r.check_end("not found", 127, "not found")
r = Run(["/etc/passwd"], n=1)
r.wait()
r.check_end("not executable", 126, "Permission denied")
r = Run(["true"], sets=["launch.workdir=/no/such/folder"])
r.wait()
r.check_end("no workdir", 2, "/no/such/folder")

# an agent killed while restarts are left: reached again
r = Run(shell('echo $((FT_RESTART + 1)) >&$FT_PROGRESS; [ $FT_RESTART = 1 ] || sleep $LT_SLEEP'), sets=["launch.restarts=2"])
r.sleepers(4)
pids = r.agent()
kill(pids[1])
r.wait()
r.check_end("lost agent, restarted", 0)
r.check_clean("lost agent, restarted")

# a run folder that cannot be made: nothing is started
r = Run(["true"], sets=["launch.run_dir=/proc/no/such"])
r.wait()
check("no run folder: status 2 and the folder", r.status == 2 and "/proc/no" in r.err, r.status, r.err)

# a busy fixed port names its owner
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(1)
port = s.getsockname()[1]
r = Run(["true"], sets=["cluster.master_port=%d" % port])
r.wait()
r.check_end("busy port", 2, "port %d" % port, "pid %d" % os.getpid())
finish()
