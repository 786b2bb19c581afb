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
        r.wait(20)
        label = "4 %s %d" % (name, status)
        check(label + ": within 3 s (generous: 5)", r.seconds < 5, r.seconds)
        if status:
            r.check_end(label, status, "exit status 7")
        else:
            r.check_end(label, 0)
        r.check_clean(label)

# a grandchild that floods the output and ignores TERM
FLOOD = "(trap '' TERM; exec setsid yes $LT_SLEEP) & "
for output in ("files", "both"):
    r = Run(shell(FLOOD + "sleep 0.2; echo last words >&2; exit 7"), sets=["launch.output=" + output])
    r.wait(30)
    r.check_end("4 flood " + output, 7, "exit status 7", "last words")
    check("4 flood: within 5 s", r.seconds < 8, r.seconds)
    r.check_clean("4 flood " + output)
r = Run(shell(FLOOD + "sleep $LT_SLEEP"), sets=["launch.output=files"])
r.sleepers(4)
r.p.kill()
r.wait(5)
r.check_clean("4 flood, launcher killed", limit=5)

# one rank's leftovers go while the others run
r = Run(shell('if [ $RANK = 1 ]; then setsid sleep $LT_SLEEP & (trap "" TERM; exec setsid sleep $LT_SLEEP) & exit 0; fi; sleep 6'))
check("4 while running: rank 1 ended", until(lambda: len(r.events("rank_exit")) == 1 if r.dir else False, 5))
sleep = r.environ["LT_SLEEP"].encode()
gone = until(lambda: not processes(lambda c, e: c.split(b"\0")[0].endswith(b"sleep") and sleep in c.split(b"\0")), 4)
check("4 while running: gone before the others ended", gone and r.p.poll() is None)
r.wait(20)
r.check_end("4 while running", 0)
r.check_clean("4 while running")

r = Run(shell(PLAIN + "exit 0"), sets=["launch.children=keep"])
r.wait(20)
r.check_end("4 keep", 0)
left = r.mine()
check("4 keep: they stay", len(left) == 4, left)
for pid, command in left:
    check("4 keep: %d is listed" % pid, "left running on localhost" in r.err and "pid %d, " % pid in r.err, r.err)
# and a later run does not take them for leftovers of a dead one
again = Run(["true"])
check("4 keep: a later run", again.wait(20) == 0)
check("4 keep: they still stay", len(r.mine()) == 4)
for pid, _ in left:
    kill(pid)
until(lambda: not r.mine(), 2)
r.check_clean("4 keep, after the test's own kill")
finish()
