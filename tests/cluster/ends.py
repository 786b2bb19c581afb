#!/usr/bin/env python3
"""How runs over ssh end: failures, cascades, killed launchers and agents, lost nodes, grandchildren, signals. After each one
nothing of the job is left on any node."""
import os
import signal
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli")]
import console
from bed import Bed, Checks
from ends_lib import finish, start
from ends_lib import wait_for as wait_for_c

LONG = "sleep 301"
c = Checks()


def wait_for(bed, n, text):
    return wait_for_c(c, bed, n, text)


def end(bed, what, r, status, words):
    c.eq(r.rc, status, what, r)
    for w in words:
        c.has(r.err, w, what, r)
    c.eq(bed.ps_within(90), [], "left behind after " + what)
    ev = bed.events(r)
    c.eq((ev[-1]["ev"], ev[-1]["status"]), ("run_end", status), "last event of " + what)
    c.eq(r.err.count("ftlaunch: error:"), 1 if status else 0, "said once, " + what, r)
    return ev


def script(by_rank, other=LONG):
    cases = "".join("%s) %s;;" % kv for kv in by_rank.items())
    return ["sh", "-c", "case $RANK in %s *) %s;; esac" % (cases, other)]


def failures(bed, job):
    run = lambda *argv, **kw: bed.run("ftlaunch", "run", job, "--", *argv, **kw)
    r = run(*script({3: "echo last words >&2; sleep 0.5; exit 7"}))
    end(bed, "1a", r, 7, ["rank 3 on node04 failed with exit status 7", "last words", "3 ranks ended by the launcher"])
    c.ok(r.s < 90, "1a ends soon", r)
    all_deaf = "for r in 0 1 2; do until [ -e $FT_RUN_DIR/deaf.$r ]; do sleep 0.05; done; done; "
    r = bed.run("ftlaunch", "run", job, "--set", "launch.grace=1s", "--", *script({3: all_deaf + "exit 7"}, "trap '' TERM INT HUP; touch $FT_RUN_DIR/deaf.$RANK; sleep 301"))
    end(bed, "1b", r, 7, ["exit status 7", "cut by KILL"])
    c.ok(r.s < 90, "1b ends soon after the grace", r)
    r = run(*script({3: "ulimit -c 0; sleep 0.5; kill -SEGV $$"}))
    end(bed, "1d", r, 139, ["SIGSEGV"])
    r = run(*script({3: "sleep 0.5; kill -KILL $$"}))
    end(bed, "1e", r, 137, ["killed from outside", "likely"])
    # the others notice the death of rank 2 (its lock is free), half a second later they fail themselves
    held = "exec 9>$FT_RUN_DIR/lock; flock 9; touch $FT_RUN_DIR/held; sleep 0.2; exit 3"
    notice = "until [ -e $FT_RUN_DIR/held ]; do sleep 0.02; done; exec 9<$FT_RUN_DIR/lock; flock 9; "
    for i in range(3):
        r = run(*script({2: held}, notice + "sleep 0.5; exit 9"))
        ev = end(bed, "2a run %d" % i, r, 3, ["rank 2 on node03 failed with exit status 3"])
        c.eq(sorted((e["rank"], e["consequence"]) for e in ev if e["ev"] == "rank_exit"), [(0, True), (1, True), (2, False), (3, True)], "2a consequences")
    r = run(*script({2: held}, notice + "sleep 0.5; ulimit -c 0; kill -ABRT $$"))
    end(bed, "2c", r, 3, ["rank 2 on node03 failed with exit status 3"])
    # 69 is earlier at the head than the cause: node03 is behind a slow link
    slow = bed.delay("node03", 100)
    for i in range(3):
        r = run(*script({2: held}, notice + "exit 69"))
        end(bed, "2e run %d%s" % (i, "" if slow else ", without delay"), r, 3, ["rank 2 on node03"])
    bed.delay("node03", 0)


def grandchildren(bed, job):
    for how, status in (("exit 0", 0), ("exit 7", 7)):
        for child in ("sleep 301", "sh -c \"trap '' TERM; while :; do echo x; sleep 1; done\""):
            r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "setsid %s & %s" % (child, how))
            end(bed, "4 %s, %s" % (how, child), r, status, [])
            c.ok(r.s < 90, "4 ends soon", r)


    # children = keep: they stay and are listed
    r = bed.run("ftlaunch", "run", job, "--set", "launch.children=keep", "--", "sh", "-c", "setsid sleep 301 > /dev/null 2>&1 & exit 0")
    c.eq(r.rc, 0, "4 children = keep", r)
    kept = [e for e in bed.events(r) if e["ev"] == "leftover"]
    c.eq(sorted(e["node"] for e in kept if "sleep 301" in e["command"]), bed.names, "4: what is kept is listed", kept)
    c.eq(sorted(l.split()[0] for l in bed.ps() if "sleep 301" in l), bed.names, "4: and is there")
    bed.reap("sleep 301")
    c.eq(bed.ps_within(90), [], "left behind by what was kept")


def killed(bed, job):
    sleepers = ["--", "sh", "-c", "setsid sleep 301 & exec sleep 301"]
    p = start(bed, job, *sleepers)
    wait_for(bed, 8, "sleep 301")
    os.kill(p.pid, signal.SIGKILL)
    finish(p)
    c.eq(bed.ps_within(90), [], "left behind after kill -9 of the launcher")
    r = bed.run("ftlaunch", "ps")
    c.has(r.out, "died", "ps shows it", r)
    p = start(bed, job, *sleepers)
    wait_for(bed, 8, "sleep 301")
    os.kill(bed.agent("node02"), signal.SIGKILL)
    finish(p)
    ev = end(bed, "3b", p, 125, ["lost agent on node02"])
    c.ok(any(e["ev"] == "node_lost" and e["node"] == "node02" for e in ev), "node_lost event", ev)
    for s, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
        p = start(bed, job, *sleepers)
        wait_for(bed, 8, "sleep 301")
        os.kill(p.pid, s)
        finish(p)
        end(bed, "3d signal %d" % s, p, status, [])
    # INT while nodes are being reached: at once
    p = start(bed, job, "--set", "nodes.lost=host=10.231.9.9", "--set", "ssh.timeout=100s", "--", "true")
    c.ok(bed.until(lambda: len([e for e in bed.events(p) if e["ev"] == "node_up"]) == 4, 60), "four nodes are reached")
    os.kill(p.pid, signal.SIGINT)
    finish(p)
    end(bed, "INT while reaching", p, 130, [])
    c.ok(p.s < 60, "INT while reaching does not wait for the node", p)


def lost_nodes(bed, job):
    quick = ["--set", "launch.heartbeat=500ms"]  # lost after 2 s
    p = start(bed, job, *quick, "--", *LONG.split())
    wait_for(bed, 4, LONG)
    bed.cut("node03")
    finish(p)
    c.eq(p.rc, 125, "cut node", p)
    c.has(p.err, "lost agent on node03", "cut node")
    lost = [e for e in bed.events(p) if e["ev"] == "node_lost"]
    c.ok(len(lost) == 1 and 2000 <= lost[0]["last_heard_ms"] < 10000 and lost[0]["ranks"] == [2], "it is seen after four beats", lost)
    c.ok(bed.until(lambda: not [l for l in bed.ps() if "sshd: " not in l], 90), "ranks of a cut node end by the lease", bed.ps())
    bed.heal("node03")
    bed.reap("sshd: ")  # it learns only from TCP that nobody is there
    p = start(bed, job, *quick, "--", *LONG.split())
    wait_for(bed, 4, LONG)
    bed.kill("node02")
    finish(p)
    c.eq(p.rc, 125, "node without power", p)
    c.has(p.err, "lost agent on node02", "node without power")
    bed.boot("node02")
    # an outage harms nothing: 4 s, with a heartbeat that leaves a slow machine room
    p = start(bed, job, "--set", "launch.heartbeat=4s", "--", "sh", "-c", "touch $FT_RUN_DIR/$RANK; until [ -e $FT_RUN_DIR/end ]; do sleep 0.1; done")
    run = lambda: os.path.join(bed.work, "runs", bed.events(p)[0]["run"])
    c.ok(bed.until(lambda: len([e for e in bed.events(p) if e["ev"] == "rank_started"]) == 4, 60), "the ranks run")
    bed.cut("node01")
    time.sleep(4)
    bed.heal("node01")
    bed.write(run() + "/end", "")
    finish(p)
    end(bed, "an outage of 4 s harms nothing", p, 0, [])
    p = start(bed, job, *quick, "--", *LONG.split())
    wait_for(bed, 4, LONG)
    bed.freeze("node04")
    finish(p)
    bed.thaw("node04")
    c.eq(p.rc, 125, "frozen node", p)
    c.has(p.err, "lost agent on node04", "frozen node")
    c.eq(bed.ps_within(90), [], "left behind on a node that was frozen")


def stalled(bed, job):
    # a launcher that stood still for longer than nodes may be silent loses nobody (their lease is 5 beats)
    p = start(bed, job, "--set", "launch.heartbeat=3s", "--", "sh", "-c", "until [ -e $FT_RUN_DIR/end ]; do sleep 0.1; done")
    c.ok(bed.until(lambda: len([e for e in bed.events(p) if e["ev"] == "rank_started"]) == 4, 60), "the ranks run")
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(12.5)
    os.kill(p.pid, signal.SIGCONT)
    bed.write(os.path.join(bed.work, "runs", bed.events(p)[0]["run"]) + "/end", "")
    finish(p)
    c.eq(p.rc, 0, "a launcher that stood still", p)


def output(bed, job):
    line = "head -c 20000 /dev/zero | tr '\\0' "
    r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "i=0; L=$(%s $RANK); while [ $i -lt 200 ]; do echo $L; i=$((i+1)); done; printf 'last %%s' $RANK" % line, timeout=300)
    end(bed, "11a", r, 0, [])
    lines = console.whole(r.out.encode())
    for k in range(4):
        c.eq(lines.count((k, b"%d" % k * 20000)), 200, "whole lines of rank %d" % k)
        c.eq(lines.count((k, b"last %d" % k)), 1, "last piece of rank %d" % k)
    c.eq(len(lines), 804, "lines")
    r = bed.run("ftlaunch", "run", job, "--", *script({3: "seq 1000000; exit 7"}), timeout=300)
    end(bed, "11b", r, 7, ["rank 3 on node04 failed with exit status 7"])
    c.eq(console.count(r.out.encode()), 1000000, "all lines of a rank that fails at once")


def meeting(bed, job):
    r = bed.run("ftlaunch", "run", job, "-v", "--", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE")
    end(bed, "address", r, 0, ["MASTER_ADDR %s (eth0 of node01, reached by 3 of 3)" % bed.addr("node01")])
    words = set(l.split("] ", 1)[1] for l in r.out.splitlines())
    up = [e for e in bed.events(r) if e["ev"] == "node_up"]
    c.eq(sorted(set(k for e in up for k in e["ms"])), ["agent", "auth", "kex", "resolve", "tcp"], "phases of node_up")
    c.ok(len(up) == 4 and all(e["ms"]["kex"] > 0 and e["ms"]["auth"] > 0 for e in up), "they took time", up)
    c.eq(len(words), 1, "every rank meets at one place", r)
    c.eq(list(words)[0].split()[0::2], [bed.addr("node01"), "4"], "where they meet", r)
    r = bed.run("ftlaunch", "run", job, "--set", "cluster.interface=eth7", "--", "true")
    end(bed, "an interface that is not there", r, 2, ["node01 has no interface eth7; it has ", bed.addr("node01"), "[cluster] interface"])
    r = bed.run("ftlaunch", "run", job, "--set", "cluster.interface=10.231.0.0/20", "--", "true")
    end(bed, "an interface as a network", r, 0, [])
    r = bed.run("ftlaunch", "run", job, "--set", "cluster.interface=10.231.0.0/20", "--", "sh", "-c", "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME")
    c.eq(sorted(l.split("] ")[1] for l in r.out.splitlines()), ["=eth0 eth0"] * 4, "every node's own name for it", r)
    r = bed.run("ftlaunch", "run", job, "--set", "cluster.master_addr=" + bed.addr("node02"), "--", "true")
    end(bed, "an address of another node", r, 2, ["is no address of node01"])
    # node03 cannot reach node01, though the head reaches both
    bed.run("ip", "route", "add", "blackhole", bed.addr("node01") + "/32", node="node03")
    r = bed.run("ftlaunch", "run", job, "--", "true")
    end(bed, "nobody can meet", r, 2, ["no address of node01 is reached by every node", "not by node03", "ftlaunch doctor"])
    bed.run("ip", "route", "del", "blackhole", bed.addr("node01") + "/32", node="node03")


def folders(bed, job):
    # one machine under two names
    r = bed.run("ftlaunch", "run", job, "--set", "nodes.other=host=" + bed.addr("node01"), "--set", "ssh.host_keys=accept-new", "--", "true")
    end(bed, "10.D", r, 2, ["nodes node01 and other are the same machine", "job.ini:4:6", "command-line"])
    # nodes that do not share the head's files get a run folder of their own, with the job
    for node in bed.names:
        bed.run("sh", "-c", "mkdir -p %s/runs && mount -t tmpfs tmpfs %s/runs" % (bed.work, bed.work), node=node)
    r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "grep -c transport $FT_JOB; stat -c %a $FT_RUN_DIR $FT_JOB; ls -A $FT_RUN_DIR")
    end(bed, "folders that are not shared", r, 0, ["the run folder is not shared", "node01"])
    c.eq(sorted(set(l.split("] ")[1] for l in r.out.splitlines())), ["1", "600", "700", "job.ini"], "what a node has", r)
    for node in bed.names:
        bed.run("umount", bed.work + "/runs", node=node)
    r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "ls $FT_RUN_DIR/events.jsonl")
    end(bed, "shared folders", r, 0, [])
    c.ok("not shared" not in r.err, "nothing is said of shared ones", r)
    c.eq(r.out.count("/events.jsonl"), 4, "they see the head's files", r)


def reaching(bed, job):
    # a resolver that never answers does not hold the run, nor its end
    slow = ["--set", "nodes.some.where.example=slots=1"]
    bed.write(bed.dir + "/empty", "nameserver 10.231.9.9\noptions timeout:10 attempts:3\n")
    r = bed.run("ftlaunch", "run", job, "--set", "ssh.timeout=2s", *slow, "--", "true")
    end(bed, "a resolver that hangs", r, 2, ["some.where.example  resolve  'some.where.example': the resolver does not answer"])
    c.ok(r.s < 90, "it ends with the timeout", r)
    p = start(bed, job, *slow, "--set", "ssh.timeout=100s", "--", "true")
    c.ok(bed.until(lambda: len([e for e in bed.events(p) if e["ev"] == "node_up"]) == 4, 60), "the others are reached")
    os.kill(p.pid, signal.SIGINT)
    finish(p)
    end(bed, "INT while the resolver hangs", p, 130, [])
    c.ok(p.s < 60, "it does not wait for the resolver", p)
    bed.write(bed.dir + "/empty", "")
    # a frozen node accepts connections and says nothing
    bed.freeze("node02")
    r = bed.run("ftlaunch", "run", job, "--set", "ssh.timeout=2s", "--", "true")
    bed.thaw("node02")
    c.eq(r.rc, 2, "a frozen node", r)
    c.has(r.err, "node02            banner   no banner", "a frozen node")
    # agent and keeper killed together: the head reaches the node again and sweeps
    p = start(bed, job, "--", "sh", "-c", "setsid sleep 301 & exec sleep 301")
    wait_for(bed, 8, "sleep 301")
    bed.reap("ftlaunch-agent", "node02")
    finish(p)
    c.eq(p.rc, 125, "agent and keeper killed", p)
    c.eq(bed.ps_within(90), [], "left behind after agent and keeper were killed")
    # a configuration that is wrong is found before anything is contacted
    bed.write(bed.home + "/.ssh/config", "Host node03\n  Port twenty\n")
    r = bed.run("ftlaunch", "run", job, "--", "true")
    c.eq(r.rc, 2, "a wrong ssh_config", r)
    c.has(r.err, "%s/.ssh/config:2" % bed.home, "its place", r)
    bed.write(bed.home + "/.ssh/config", "Host node03\n  ProxyCommand cat %h | cat\n")
    r = bed.run("ftlaunch", "run", job, "--", "true")
    c.eq(r.rc, 2, "a ProxyCommand that needs a shell", r)
    c.has(r.err, "ProxyCommand: '|' needs a shell", "it is refused by its name", r)
    c.has(r.err, "%s/.ssh/config:2" % bed.home, "with its place", r)
    os.unlink(bed.home + "/.ssh/config")


PARTS = {"reaching": reaching, "folders": folders, "failures": failures, "grandchildren": grandchildren, "killed": killed, "lost": lost_nodes, "output": output, "meeting": meeting}
ASKED = {"stalled": stalled}  # by name only: seconds decide
with Bed(4) as bed:
    job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[nodes]\nnode[01-04] = slots=1\n")
    for part in sys.argv[2:] or PARTS:
        {**PARTS, **ASKED}[part](bed, job)
sys.exit(c.end())
