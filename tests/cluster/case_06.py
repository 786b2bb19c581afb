#!/usr/bin/env python3
"""Every kind of connection failure at once (and each reason named): what a user sees when half a cluster is wrong."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks, sh

LISTENER = """
import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('', 2201)); s.listen(8)
open(sys.argv[1], 'w').close()
k = []
while True: k.append(s.accept()[0])
"""


def sshd_on(bed, node, name, text):
    """A second sshd on a node."""
    conf = bed.write("%s/%s/%s.conf" % (bed.dir, node, name), "HostKey %s/%s/key\nUsePAM no\nUseDNS no\nKbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n" % (bed.dir, node) + text)
    bed.run("/usr/sbin/sshd", "-f", conf, node=node)


def mine(bed):
    """What is there but the listener and the other sshds of the test."""
    return [l for l in bed.ps() if "-c" not in l and "sshd" not in l]


def last_event(bed):
    runs = sorted(os.listdir(bed.work + "/runs"), key=lambda r: os.stat(bed.work + "/runs/" + r).st_mtime)
    with open("%s/runs/%s/events.jsonl" % (bed.work, runs[-1])) as f:
        return [json.loads(l) for l in f]


def timing(text):
    """The rows of --timing."""
    rows = re.findall(r"^  (\S+(?: \S+)?) +([0-9.]+) ms(?: +([0-9.]+) ms  (\S+))?$", text.partition("ftlaunch: timing ")[2], re.M)
    return {name: (float(x), float(worst or x), node) for name, x, worst, node in rows}


def main():
    c = Checks()
    with Bed(6) as bed:
        home = bed.home
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret words", "-C", "locked", "-f", home + "/.ssh/locked")
        with open(home + "/.ssh/known_hosts") as f:
            known = f.read().splitlines()
        silent = bed.addr("node03")
        first = known[0].split()
        lines = [l for l in known if not l.startswith("node04,")]  # node04 is unknown
        other = open(bed.dir + "/node06/key.pub").read().split()
        lines = [l if not l.startswith("node05,") else "node05,%s ssh-ed25519 %s" % (bed.addr("node05"), other[1]) for l in lines]
        lines += ["[node06]:%d %s %s" % (p, other[0], other[1]) for p in (2202, 2203)]
        with open(home + "/.ssh/known_hosts", "w") as f:
            f.write("\n".join(lines) + "\n")
        changed_line = [i for i, l in enumerate(lines) if l.startswith("node05,")][0] + 1
        sshd_on(bed, "node06", "password", "Port 2202\nPidFile /run/p2\nPubkeyAuthentication no\nPasswordAuthentication yes\nPermitRootLogin yes\n")
        sshd_on(bed, "node06", "locked", "Port 2203\nPidFile /run/p3\nPasswordAuthentication no\nAuthorizedKeysFile %s/.ssh/locked.pub\n" % home)
        flag = bed.dir + "/node03/listening"
        bed.popen("python3", "-c", LISTENER, flag, node="node03")
        while not os.path.exists(flag):
            time.sleep(0.02)
        job = bed.write("job.ini", """[cluster]
transport = ssh
[ssh]
timeout = 5s
[nodes]
node01 = slots=1
node02 = slots=1
lost = host=10.231.9.9
closed = host=node03 port=2299
silent = host=node03 port=2201
nowhere.invalid =
node04 =
node05 =
password = host=node06 port=2202
locked = host=node06 port=2203 identity=~/.ssh/locked
""")
        want = {
            "lost": ("tcp", ["no route to host", "no answer"]), "closed": ("tcp", ["refused"]), "silent": ("banner", ["no banner"]),
            "nowhere.invalid": ("resolve", ["nowhere.invalid"]), "node04": ("hostkey", ["unknown"]), "node05": ("hostkey", ["CHANGED"]),
            "password": ("auth", ["server offers: password"]), "locked": ("auth", ["passphrase"]),
        }
        key4 = sh("ssh-keygen", "-lf", bed.dir + "/node04/key.pub").split()[1]
        for terminal in (False, True):
            r = run(bed, job, terminal)
            c.eq(r.rc, 2, "status", r)
            c.ok(r.s < 25, "ends with the timeout of 5 s, not with the sum over the hosts", r)
            rows = dict((m.group(1), (m.group(2), m.group(3))) for m in re.finditer(r"^  (\S+) +(resolve|tcp|banner|kex|hostkey|auth|channel|agent) +(.*)$", r.err, re.M))
            c.eq(sorted(rows), sorted(want), "rows of the table", r)
            for host, (phase, words) in want.items():
                if host not in rows:
                    continue
                c.eq(rows[host][0], phase, "phase of " + host, r)
                c.ok(any(w in rows[host][1] for w in words), "reason of " + host, rows[host][1])
            c.has(rows.get("node04", ("", ""))[1], key4, "fingerprint of the unknown key")
            c.has(rows.get("node04", ("", ""))[1], "accept-new", "remedy of the unknown key")
            c.has(rows.get("node05", ("", ""))[1], "%s/.ssh/known_hosts:%d" % (home, changed_line), "place of the changed key")
            c.has(rows.get("password", ("", ""))[1], "keys tried", "keys of password")
            c.has(rows.get("locked", ("", ""))[1], home + "/.ssh/locked", "key file of locked")
            c.has(rows.get("locked", ("", ""))[1], "ssh-agent", "ssh-agent of locked")
            c.has(r.err, "still waiting for", "says whom it waits for")
            c.eq(r.err.count("no banner"), 1, "each reason once")
            ev = last_event(bed)
            c.eq(ev[-1]["ev"], "run_end", "last event")
            c.eq(ev[-1]["status"], 2, "status in run_end")
            c.eq(sorted(e["node"] for e in ev if e["ev"] == "node_failed"), sorted(want), "node_failed events")
            c.eq([e for e in ev if e["ev"] == "rank_started"], [], "no rank was started")
            c.ok(bed.until(lambda: not mine(bed), 90), "left behind", mine(bed))
        soon = ["--set", "ssh.timeout=4s"]
        # enough of them are there: the job runs on those and says so
        r = bed.run("ftlaunch", "run", job, "--timing", "--set", "launch.min_nodes=2", *soon, "--", "hostname")
        c.eq((r.rc, sorted(r.out.splitlines())), (0, ["[0 node01] node01", "[1 node02] node02"]), "min_nodes = 2", r)
        c.has(r.err, "8 of 10 nodes not reached", "min_nodes = 2", r)
        c.has(r.err, "goes on with 2 ranks on 2 nodes (min_nodes = 2)", "min_nodes = 2", r)
        ev = last_event(bed)
        c.eq([e["ev"] for e in ev if e["ev"].startswith("run_") or e["ev"] == "replan"], ["run_start", "replan", "run_end"], "events of min_nodes = 2")
        c.eq([e["nodes"] for e in ev if e["ev"] == "replan"], [["node01", "node02"]], "nodes of the new plan")
        rows = timing(r.err)
        c.eq(list(rows), ["resolve", "tcp", "kex", "auth", "agent", "all up", "address", "ready", "until GO", "start", "gone"], "phases of --timing", r)
        for phase, (median, worst, node) in [(p, rows[p]) for p in ("resolve", "tcp", "kex", "auth", "agent") if p in rows]:
            most = max((e["ms"][phase], e["node"]) for e in ev if e["ev"] == "node_up")
            c.ok(median <= worst and abs(worst - most[0]) < 0.06 and node in ("node01", "node02"), "--timing of " + phase, rows, most)
        r = bed.run("ftlaunch", "run", job, "--timing", "--set", "launch.min_nodes=3", *soon, "--", "hostname")
        c.eq(r.rc, 2, "min_nodes = 3", r)
        c.eq(list(timing(r.err)), ["resolve", "tcp", "kex", "auth", "agent"], "--timing of a run that is refused", r)
        r = bed.run("ftlaunch", "run", job, "-n", "10", "--set", "launch.min_nodes=2", *soon, "--", "hostname")
        c.eq(r.rc, 2, "a world that was asked for does not shrink", r)
        c.eq(last_event(bed)[-1]["ev"], "run_end", "its last event")
        c.ok(bed.until(lambda: not mine(bed), 90), "left behind after min_nodes", mine(bed))
        # accept-new takes the unknown key once, never a changed one
        job2 = bed.write("new.ini", "[cluster]\ntransport = ssh\n[ssh]\nhost_keys = accept-new\ntimeout = 5s\n[nodes]\nnode04 =\n")
        for _ in range(2):
            r = bed.run("ftlaunch", "run", job2, "--", "true")
            c.eq(r.rc, 0, "accept-new", r)
        with open(home + "/.ssh/known_hosts") as f:
            c.eq(sum(l.startswith("node04 ") for l in f), 1, "the key was kept once")
        for keys in ("accept-new", "off"):
            r = bed.run("ftlaunch", "run", job2, "--set", "ssh.host_keys=" + keys, "--set", "cluster.include=node05", "--set", "nodes.node05=slots=1", "--", "true")
            c.eq(r.rc, 2, "a changed key fails with " + keys, r)
            c.has(r.err, "CHANGED", "changed key with " + keys)
        # an sshd that starts late
        late = bed.write("late.ini", "[cluster]\ntransport = ssh\n[ssh]\ntimeout = 60s\n[nodes]\nnode01 =\nlate = host=node02 port=2204\n")
        with open(home + "/.ssh/known_hosts", "a") as f:
            f.write("[node02]:2204 " + " ".join(open(bed.dir + "/node02/key.pub").read().split()[:2]) + "\n")
        p = bed.popen("ftlaunch", "run", late, "--", "hostname", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        c.ok(bed.until(lambda: "still waiting for late" in bed.said(p), 60), "it says whom it waits for after 2 s")
        sshd_on(bed, "node02", "late", "Port 2204\nPidFile /run/p4\n")
        out, err = p.communicate(timeout=120)
        c.eq(p.returncode, 0, "an sshd that starts late", err.decode())
        c.has(err.decode(), "still waiting for late: tcp: connection refused", "says whom it waits for")
        c.eq(sorted(out.decode().split("\n")), ["", "[0 node01] node01", "[1 late] node02"], "output")
    return c.end()


def run(bed, job, terminal):
    if not terminal:
        return bed.run("ftlaunch", "run", job, "--", "true")
    # with a terminal as stdin: nothing may be asked there
    import pty
    a, b = pty.openpty()
    t = time.monotonic()
    p = bed.popen("ftlaunch", "run", job, "--", "true", stdin=b, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    os.close(b)
    out, err = p.communicate(timeout=30)
    os.set_blocking(a, False)
    try:
        asked = os.read(a, 1000)
    except OSError:
        asked = b""
    os.close(a)
    p.out, p.err, p.rc, p.s = out.decode() + asked.decode(), err.decode(), p.returncode, time.monotonic() - t
    return p


sys.exit(main())
