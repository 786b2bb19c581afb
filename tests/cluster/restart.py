#!/usr/bin/env python3
"""Restarts across nodes: a spare takes the place of a lost node, fewer nodes go on, nodes that come back are used again, a node that
fails twice gives its place away; agents that live are kept. --full: too few nodes in each way, too (tests/campaign/losses)."""
import glob
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks
from ends_lib import finish, start, wait_for

c = Checks()


def events(bed):
    runs = sorted(glob.glob(bed.work + "/runs/*"), key=lambda p: os.stat(p).st_mtime)
    with open(runs[-1] + "/events.jsonl") as f:
        return runs[-1], [json.loads(l) for l in f]


# a program that makes progress, and sleeps in its first attempt
PROG = ["sh", "-c", "echo $((FT_RESTART + 1)) >&$FT_PROGRESS; echo $RANK $FT_NODE $FT_RESTART $WORLD_SIZE; [ $FT_RESTART != 0 ] || exec sleep 301"]


def asleep(bed, p, n):
    """n ranks sleep, and what they said before has reached the head: a node that is cut off then takes nothing with it."""
    wait_for(c, bed, n, "sleep 301")

    def said():
        logs = ["%s/runs/%s/ranks/%04d.log" % (bed.work, bed.events(p)[0]["run"], r) for r in range(n)]
        return all(os.path.exists(f) and os.path.getsize(f) for f in logs)

    c.ok(bed.until(said, 120), "what %d ranks said is at the head" % n)


def lines(p):
    return sorted(l.split("] ")[1] for l in p.out.splitlines())


with Bed(4) as bed:
    job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[ssh]\ntimeout = 5s\n[launch]\nrestarts = 3\ngrace = 2s\ncooldown = 0\nheartbeat = 500ms\n[nodes]\nnode[01-04] = slots=1\n")
    spare = ["--set", "launch.spare_nodes=1"]

    # a spare that is not needed ends with the others
    r = bed.run("ftlaunch", "run", job, *spare, "--", "sh", "-c", "echo $FT_NODE")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, ["[%d node%02d] node%02d" % (i, i + 1, i + 1) for i in range(3)]), "three ranks, one spare", r)
    c.eq(bed.ps_within(90), [], "left behind by a spare")
    # a spare that is missing is said and not missed
    bed.freeze("node04")
    r = bed.run("ftlaunch", "run", job, *spare, "--", "true")
    bed.thaw("node04")
    c.eq(r.rc, 0, "a spare that is not there", r)
    c.has(r.err, "spare node04 is not there: banner", "it is said", r)
    # a node that is not there at the start has its place taken
    r = bed.run("ftlaunch", "run", job, *spare, "--set", "nodes.node02=port=2299", "--", "sh", "-c", "echo $FT_NODE")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, ["[0 node01] node01", "[1 node04] node04", "[2 node03] node03"]), "a spare at the start", r)
    c.has(r.err, "node04 takes the place of node02 (node 1)", "it is said", r)

    # power cut of a node
    p = start(bed, job, *spare, "--", *PROG)
    asleep(bed, p, 3)
    agents = [l for l in bed.ps("node01", "node03") if "ftlaunch-agent" in l]
    bed.kill("node02")
    finish(p)
    c.eq(p.rc, 0, "a spare for a lost node", p)
    c.eq(lines(p), ["0 node01 0 3", "0 node01 1 3", "1 node02 0 3", "1 node04 1 3", "2 node03 0 3", "2 node03 1 3"], "who ran where", p)
    run, ev = events(bed)
    c.eq(len([e for e in ev if e["ev"] == "node_up"]), 4, "nobody is reached twice: agents are kept")
    c.eq([(e["node"], e["ranks"]) for e in ev if e["ev"] == "node_lost"], [("node02", [1])], "node_lost")
    c.eq([(e["reason"], e["nodes"], e["next"]) for e in ev if e["ev"] == "restart"], [("node", ["node01", "node02", "node03"], 1)], "restart event")
    c.eq([(e["nodes"], e["mesh"], e["attempt"]) for e in ev if e["ev"] == "replan"], [(["node01", "node04", "node03"], {"tp": 1, "pp": 1, "dp": 3}, 1)], "replan event")
    with open(run + "/plan.json") as f:
        plan = json.load(f)
    c.eq([n["name"] for n in plan["nodes"]] + [n["name"] for n in plan["spares"]], ["node01", "node04", "node03", "node02"], "plan.json as it is now")
    ports = [e["port"] for e in ev if e["ev"] == "address"]
    c.ok(len(ports) == 2 and ports[0] != ports[1], "another port at the restart", ports)
    c.ok("still waiting" not in p.err and p.err.count("ftlaunch: error:") == 1, "one error, nothing is waited for", p)

    # without a spare: the node is reached again, and comes back in time
    bed.boot("node02")
    p = start(bed, job, "--set", "ssh.timeout=60s", "--", *PROG)
    asleep(bed, p, 4)
    bed.kill("node02")
    c.ok(bed.until(lambda: "attempt 1" in bed.said(p), 60), "the restart begins")
    bed.boot("node02")
    finish(p)
    c.eq(p.rc, 0, "a node that comes back", p)
    c.eq(lines(p)[1::2], ["%d node%02d 1 4" % (i, i + 1) for i in range(4)], "the same places", p)

    # it does not come back: fewer nodes, then none
    p = start(bed, job, "--set", "launch.min_nodes=3", "--", *PROG)
    asleep(bed, p, 4)
    bed.kill("node02")
    finish(p)
    c.eq(p.rc, 0, "fewer nodes", p)
    c.eq([l for l in lines(p) if l.endswith(" 3")], ["0 node01 1 3", "1 node03 1 3", "2 node04 1 3"], "who goes on", p)
    c.has(p.err, "goes on with 3 ranks on 3 nodes (min_nodes = 3)", "it says so", p)
    _, ev = events(bed)
    c.eq([(e["nodes"], e["mesh"]["dp"]) for e in ev if e["ev"] == "replan"], [(["node01", "node03", "node04"], 3)], "replan")
    bed.boot("node02")
    cases = [(["--set", "launch.min_nodes=4"], "3 nodes are there, min_nodes = 4"), ([], "not reached")]
    for more, words in cases if "--full" in sys.argv else ():
        p = start(bed, job, *more, "--", *PROG)
        asleep(bed, p, 4)
        bed.kill("node02")
        finish(p)
        bed.boot("node02")
        c.eq(p.rc, 125, "too few nodes", p)
        c.has(p.err, "no node is left for some ranks", "it says so", p)
        c.has(p.err, words, "and why", p)
        _, ev = events(bed)
        c.eq((ev[-1]["ev"], ev[-1]["cause"]["kind"]), ("run_end", "node"), "its cause")
        c.eq(bed.ps_within(90), [], "left behind")

    # a node that was lost is used last for a while, and the run says so
    remember = ["--set", "launch.cooldown=30m", "--set", "launch.restarts=0"]
    p = start(bed, job, *spare, *remember, "--", *PROG)
    asleep(bed, p, 3)
    bed.kill("node02")
    finish(p)
    bed.boot("node02")
    c.eq(p.rc, 125, "a lost node without restarts", p)
    with open(bed.home + "/.local/state/ftlaunch/faults.jsonl") as f:
        c.eq([(json.loads(l)["node"], json.loads(l)["kind"]) for l in f], [("node02", "loss")], "what is remembered")
    for more, order in ((remember, ["node01", "node04", "node03"]), (["--set", "launch.cooldown=0"], ["node01", "node02", "node03"]),
                        (remember + ["--set", "cluster.name=other"], ["node01", "node02", "node03"])):
        r = bed.run("ftlaunch", "run", job, *spare, *more, "--", "sh", "-c", "echo $RANK $FT_NODE")
        c.eq((r.rc, lines(r)), (0, ["%d %s" % x for x in enumerate(order)]), "order of nodes", r)
        c.eq(("node02 is used last: it was lost" in r.err), order[1] == "node04", "and it is said", r)
    r = bed.run("ftlaunch", "run", job, *remember, "--", "sh", "-c", "echo $RANK $FT_NODE")
    c.eq(lines(r), ["%d node%02d" % (i, i + 1) for i in range(4)], "it is never left out", r)

    # a rank that fails on one node again and again: its place goes to the spare
    sick = ["sh", "-c", "echo $((FT_RESTART + 1)) >&$FT_PROGRESS; [ $FT_RESTART != 2 ] || exit 0; touch $FT_RUN_DIR/$RANK.$FT_RESTART; "
            "[ $RANK = 1 ] || exec sleep 301; for r in 0 2; do until [ -e $FT_RUN_DIR/$r.$FT_RESTART ]; do sleep 0.02; done; done; exit 5"]
    p = start(bed, job, *spare, "--", *sick)
    finish(p)
    c.eq(p.rc, 0, "a node that fails twice", p)
    c.has(p.err, "node04 takes the place of node02 (node 1)", "the spare is used", p)
    _, ev = events(bed)
    c.eq([e["attempt"] for e in ev if e["ev"] == "replan"], [2], "at the second failure")
    c.eq(bed.ps_within(90), [], "left behind at the end")
sys.exit(c.end())
