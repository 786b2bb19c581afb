#!/usr/bin/env python3
"""Case 1: one rank fails, the others are stuck."""
from launch_lib import *

stuck = "sleep $LT_SLEEP"
deaf = "trap '' TERM INT HUP; touch $FT_RUN_DIR/deaf.$RANK; sleep $LT_SLEEP"
all_deaf = "for r in 0 1 2; do until [ -e $FT_RUN_DIR/deaf.$r ]; do sleep 0.05; done; done; "


def one(name, end, others, status, words, sets=()):
    r = Run(shell('if [ $RANK = 3 ]; then echo "last words of rank 3" >&2; sleep 0.5; %s; fi; %s' % (end, others)), sets=sets)
    r.wait()
    r.check_end(name, status, "rank 3 on localhost", "last words of rank 3", "3 ranks ended by the launcher", *words)
    pids = {e["rank"]: e["pid"] for e in r.events("rank_started")}
    check(name + ": its pid", 3 in pids and "pid %d" % pids[3] in r.err, pids, r.err)
    check(name + ": said once", r.err.count("ftlaunch: error:") == 1, r.err)
    for e in r.events("rank_exit"):
        check("%s: consequence of rank %d" % (name, e["rank"]), e["consequence"] == (e["rank"] != 3), e)
    cause = r.events("run_end")[0]["cause"]
    check(name + ": cause", cause["kind"] == "rank" and cause["rank"] == 3 and cause["status"] == status, cause)
    r.check_clean(name)


one("1a", "exit 7", stuck, 7, ["exit status 7"])
one("1b", all_deaf + "exit 7", deaf, 7, ["exit status 7", "ranks 0-2 cut by KILL"], ["launch.grace=1s"])
one("1d", "ulimit -c 0; kill -SEGV $$", stuck, 139, ["SIGSEGV"])
one("1e", "kill -KILL $$", stuck, 137, ["killed from outside", "likely"])
finish()
