#!/usr/bin/env python3
"""Case 2: a cascade; the cause is found 20 times of 20. Every rank notices the death of rank 2."""
from launch_lib import *

NOTICE = """
import os, sys, time
rank, mark, wait, how = int(os.environ["RANK"]), sys.argv[1], float(sys.argv[2]), sys.argv[3]
if rank == 2:
    time.sleep(0.2)
    with open(mark + ".new", "w") as f:
        f.write(str(os.getpid()))
    os.rename(mark + ".new", mark)
    os._exit(3)
while not os.path.exists(mark):
    time.sleep(0.001)
pid = open(mark).read()
try:  # dead: a zombie or gone, however long the machine took for it
    while open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()[0] not in "ZX":
        time.sleep(0.001)
except (FileNotFoundError, ProcessLookupError):
    pass
time.sleep(wait)
if how == "abort":
    os.abort()
os._exit(int(how))
"""


def twenty(name, wait, how):
    wrong = 0
    for i in range(20):
        mark = os.path.join(tempfile.mkdtemp(prefix="ftmark-"), "mark")
        r = Run([sys.executable, "-S", "-c", NOTICE, mark, str(wait), how], preexec_fn=lambda: __import__("resource").setrlimit(4, (0, 0)))
        r.wait()
        os.unlink(mark)
        os.rmdir(os.path.dirname(mark))
        good = r.status == 3 and "rank 2 on localhost failed with exit status 3" in r.err and r.err.count("error:") == 1
        exits = {e["rank"]: e for e in r.events("rank_exit")}
        good = good and len(exits) == 4 and all(exits[k]["consequence"] == (k != 2) for k in exits)
        if not good:
            wrong += 1
            print(name, i, r.status, r.err, exits)
        r.check_clean(name)
    check("%s: 20 of 20" % name, wrong == 0, wrong)


twenty("2a", 0.15, "9")
twenty("2b", 0.02, "9")
twenty("2c", 0.15, "abort")
finish()
