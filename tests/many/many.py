#!/usr/bin/env python3
"""48 nodes that exist only as agents on this machine: every rank runs on a node of its own, a failing one is blamed, nothing is left of
any end, the events name every node, and the head lives within its limit of open files or says that it cannot. usage: many.py BIN"""
import os
import re
import signal
import sys

from many_bed import Many, until

N = 48
failures = []


def check(what, ok, *more):
    if not ok:
        failures.append(what)
        print("FAILED:", what, *more, flush=True)


def nothing_left(m, what):
    check(what + ": every node is over", until(lambda: len(m.ended()) >= N), len(m.ended()))
    check(what + ": nothing was left on a node", sorted(m.ended()) == [(name, 0) for name in m.names], m.ended())
    check(what + ": no process is left", until(lambda: not m.processes(), 30), m.processes())


def every_node(m, what):
    for kind in ("node_up", "gone"):
        check("%s: %s of every node" % (what, kind), sorted(e["node"] for e in m.events(kind)) == m.names)
    for kind in ("rank_started", "rank_exit"):
        check("%s: %s of every rank" % (what, kind), sorted((e["rank"], e["node"]) for e in m.events(kind)) == list(enumerate(m.names)))


def timing(m):
    """The rows of --timing: {phase: [median ms, worst ms, node]}; of the run: [ms]."""
    rows = re.findall(r"^  (\S+(?: \S+)?) +([0-9.]+) ms(?: +([0-9.]+) ms  (\S+))?$", m.text(m.err).partition("ftlaunch: timing ")[2], re.M)
    return {name: [float(x), float(worst), node] if node else [float(x)] for name, x, worst, node in rows}


with Many(sys.argv[1], N) as m:
    # four open files for each node, 64 for the head itself, and 20 for the 48 files of ranks, which write twice; the soft limit is raised
    m.start("sh", "-c", "echo rank $RANK on $(uname -n); echo again", options=["--timing"], files=(64, 4 * N + 84))
    check("all ranks end with 0", m.wait() == 0, m.text(m.err))
    every_node(m, "true")
    for rank, name in enumerate(m.names):
        check("rank %d ran on its node and wrote whole" % rank, m.log(rank) == "rank %d on %s\nagain\n" % (rank, name), m.log(rank))
    where = m.events("address")
    check("every node reached the first", len(where) == 1 and where[0]["reached"] == m.names[1:] and where[0]["of"] == N - 1, where)
    check("the end is a good one", [e["status"] for e in m.events("run_end")] == [0])
    rows = timing(m)
    check("--timing has every phase", list(rows) == ["agent", "all up", "address", "ready", "until GO", "start", "gone"], rows, m.text(m.err))
    check("its medians, its worst and their nodes make sense", all(len(r) == 1 or (r[0] <= r[1] and r[2] in m.names) for r in rows.values()), rows)
    reach = sorted((e["ms"]["agent"], e["node"]) for e in m.events("node_up"))
    check("they are those of the events", abs(rows["agent"][1] - reach[-1][0]) < 0.06 and abs(rows["agent"][0] - reach[N // 2][0]) < 0.06, rows, reach)
    check("what comes before GO is a part of it", rows["all up"][0] + rows["address"][0] <= rows["until GO"][0] + 0.2, rows)
    nothing_left(m, "true")

    m.start("true", files=(64, 4 * N + 79))
    check("a hard limit that is too small is a refusal", m.wait() == 2, m.text(m.err))
    check("it says how many it needs and what may be done", "%d nodes need %d open files" % (N, 4 * N + 80) in m.text(m.err) and
          "raise the hard limit" in m.text(m.err), m.text(m.err))
    check("and contacts nobody", not m.events("node_up") and not m.ended() and not os.path.exists(os.path.join(m.nodes, "boot-1")))

    m.start(*m.fail_rank(17, 7))
    check("all ranks start", until(lambda: len(m.events("rank_started")) == N), m.text(m.err))
    m.release()
    check("the failing rank's status is the run's", m.wait() == 7, m.text(m.err))
    check("it is blamed", "rank 17 on n0018 failed with exit status 7" in m.text(m.err), m.text(m.err))
    every_node(m, "a failing rank")
    check("every other end is a consequence", [e["rank"] for e in m.events("rank_exit") if not e["consequence"]] == [17])
    cause = m.events("run_end")[0]["cause"]
    check("the cause is recorded", (cause["kind"], cause["rank"], cause["node"], cause["status"]) == ("rank", 17, "n0018", 7), cause)
    nothing_left(m, "a failing rank")

    m.start("sleep", "86399")
    check("all ranks start again", until(lambda: len(m.events("rank_started")) == N), m.text(m.err))
    m.p.send_signal(signal.SIGKILL)
    check("the head was killed", m.wait() == -signal.SIGKILL)
    nothing_left(m, "a killed head")

print("%d failed" % len(failures))
sys.exit(1 if failures else 0)
