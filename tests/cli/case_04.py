#!/usr/bin/env python3
"""Case 4: a grandchild keeps the output open."""
from launch_lib import *

WRITER = "setsid bash -c 'while :; do echo line; sleep 0.1; done' & "
DEAF = "(trap '' TERM; exec setsid sleep $LT_SLEEP) & "
PLAIN = "setsid sleep $LT_SLEEP & "
BARE = "env -i setsid sleep $LT_SLEEP & "
LATER = "setsid bash -c 'trap \"\" TERM; sleep $LT_SLEEP & disown; exit' & "

for name, grandchild in (("plain", PLAIN), ("writer", WRITER), ("deaf", DEAF), ("env -i", BARE), ("double fork", LATER)):
    for status in (0, 7):
        r = Run(shell(grandchild + "exit %d" % status))
        r.wait()
        label = "4 %s %d" % (name, status)
        if status:
            r.check_end(label, status, "exit status 7")
        else:
            r.check_end(label, 0)
        r.check_clean(label)

# a grandchild that floods the output and ignores TERM
FLOOD = "(trap '' TERM; exec setsid yes $LT_SLEEP) & "
for output in ("files", "both"):
    r = Run(shell(FLOOD + "sleep 0.2; echo last words >&2; exit 7"), sets=["launch.output=" + output])
    r.wait()
    r.check_end("4 flood " + output, 7, "exit status 7", "last words")
    r.check_clean("4 flood " + output)
r = Run(shell(FLOOD + "sleep $LT_SLEEP"), sets=["launch.output=files"])
r.sleepers(4)
r.p.kill()
r.wait()
r.check_clean("4 flood, launcher killed")

# one rank's leftovers go while the others run
go = tempfile.mkdtemp(prefix="ftcase-")
folders.add(go)
r = Run(shell('if [ $RANK = 1 ]; then setsid sleep $LT_SLEEP & (trap "" TERM; exec setsid sleep $LT_SLEEP) & exit 0; fi; while [ ! -e $GO ]; do sleep 0.05; done'), env={"GO": os.path.join(go, "go")})
check("4 while running: rank 1 ended", until(lambda: len(r.events("rank_exit")) == 1 if r.dir else False))
sleep = r.environ["LT_SLEEP"].encode()
gone = until(lambda: not processes(lambda c, e: c.split(b"\0")[0].endswith(b"sleep") and sleep in c.split(b"\0")))
check("4 while running: gone before the others ended", gone and r.p.poll() is None)
open(os.path.join(go, "go"), "w").close()
r.wait()
r.check_end("4 while running", 0)
r.check_clean("4 while running")

r = Run(shell(PLAIN + "exit 0"), sets=["launch.children=keep"])
r.wait()
r.check_end("4 keep", 0)
until(lambda: len([p for p in r.mine() if p[1].endswith("ftlaunch-agent")]) == 1)
drains = [p for p in r.mine() if p[1].endswith("ftlaunch-agent")]
left = [p for p in r.mine() if p not in drains]
check("4 keep: they stay", len(left) == 4, left)
check("4 keep: one process reads what they write", len(drains) == 1, drains)
for pid, command in left:
    check("4 keep: %d is listed" % pid, "left running on localhost" in r.err and "pid %d, " % pid in r.err, r.err)
# and a later run does not take them for leftovers of a dead one
again = Run(["true"])
check("4 keep: a later run", again.wait() == 0)
check("4 keep: they still stay", [p for p in r.mine() if p not in drains] == left, r.mine())
for pid, _ in left:
    kill(pid)
r.check_clean("4 keep, after the test's own kill")  # the reader of their pipes ends with them

# what is kept may write after the end of the run: no SIGPIPE, more than a pipe holds, and the rank's file has it
mark = tempfile.mkdtemp(prefix="ftcase-")
folders.add(mark)
LATER = """(exec setsid bash -c 'trap "touch $MARK/pipe" PIPE; while [ ! -e $MARK/go ]; do sleep 0.05; done
head -c 1000000 /dev/zero | tr "\\0" z; echo; echo spoken later; echo complained later >&2; echo 7 >&$FT_PROGRESS; touch $MARK/done.$RANK; exec sleep $LT_SLEEP') & exit 0"""
r = Run(shell(LATER), n=2, sets=["launch.children=keep"], env={"MARK": mark})
check("4 later: the launcher returns before", r.wait() == 0, r.status, r.err)
open(mark + "/go", "w").close()
check("4 later: they write to the end", until(lambda: all(os.path.exists(mark + "/done.%d" % k) for k in (0, 1))), os.listdir(mark), r.mine())
check("4 later: no SIGPIPE", not os.path.exists(mark + "/pipe"))
for k in (0, 1):
    check("4 later: it is in the file of rank %d" % k,
          until(lambda: (lambda t: t.count(b"z") == 1000000 and b"spoken later\n" in t and b"complained later\n" in t)(r.log(k))), r.log(k)[-200:])
for pid, command in r.mine():
    if "sleep" in command:
        kill(pid)
r.check_clean("4 later")
finish()
