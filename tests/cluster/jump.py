#!/usr/bin/env python3
"""Jump hosts: every node through one connection per chain, nothing more on the bastion; and what its loss looks like."""
import os
import shutil
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli")]
import console
import ends_lib
from bed import Bed, Checks

c = Checks()


def logins(bed, name):
    with open("%s/%s/sshd.log" % (bed.dir, name)) as f:
        return sum("Accepted publickey" in l for l in f)


with Bed(6, sshd_more="LogLevel VERBOSE") as bed:
    nodes = "".join("node%02d =\n" % i for i in range(2, 7))
    job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[ssh]\njump = node01\ntimeout = 10s\n[nodes]\n" + nodes)
    want = sorted("[%d node%02d] node%02d" % (i, i + 2, i + 2) for i in range(5))
    # nothing but the bastion can be reached from the head
    for i in range(2, 7):
        bed.run("ip", "route", "add", "blackhole", bed.addr("node%02d" % i) + "/32")
    r = bed.run("ftlaunch", "run", job, "--", "hostname")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, want), "five nodes through one bastion", r)
    c.eq(logins(bed, "node01"), 1, "authentications of the bastion")
    c.eq(bed.ps_within(90), [], "left behind")
    r = bed.run("ftlaunch", "run", job, "--set", "ssh.jump=none", "--set", "ssh.timeout=2s", "--", "true")
    c.eq(r.rc, 2, "without the bastion", r)
    # output through it, whole
    r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "seq 200000", timeout=300)
    c.eq((r.rc, console.count(r.out.encode())), (0, 1000000), "a million lines through the bastion", r.err)
    # two bastions, one behind the other, the agent sent through them; ProxyJump of ssh_config
    for d in ("/.cache", "/.local"):
        shutil.rmtree(bed.home + d, ignore_errors=True)
    two = ["--set", "ssh.jump=node01,node02", "--set", "cluster.include=node[03-06]"]
    r = bed.run("ftlaunch", "run", job, *two, "--", "hostname")
    c.eq(r.rc, 0, "a chain of two", r)
    c.eq(logins(bed, "node02") - 2, 1, "authentications of the second")  # two runs before had a rank there
    # more than any buffer on the way holds: the head pumps both ends of it
    big = bed.write("big.ini", "[env]\n" + "".join("V%d = %s\n" % (i, "v" * 1000) for i in range(1500)))
    r = bed.run("ftlaunch", "run", job, big, *two, "--", "sh", "-c", "env | grep -c ^V")
    c.eq((r.rc, sorted(l.split("] ")[1] for l in r.out.splitlines())), (0, ["1500"] * 4), "an environment of 1.5 MB through two", r)
    bed.write(bed.home + "/.ssh/config", "Host node02\n  ProxyJump node01\nHost node0[3-6] node03 node04 node05 node06\n  ProxyJump node02\n")
    plain = bed.write("plain.ini", "[cluster]\ntransport = ssh\n[ssh]\ntimeout = 10s\n[nodes]\n" + nodes)
    r = bed.run("ftlaunch", "run", plain, "--", "hostname")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, want), "chains of ssh_config", r)
    # ProxyCommand: of nodes, of a jump host; one that fails says why
    conf = "Host node0[1-6] node03 node04\n  ProxyCommand ssh -q -W [%h]:%p node01 2>/dev/null\n"
    bed.write(bed.home + "/.ssh/config", conf)
    nodes34 = ["--set", "cluster.include=node[03-04]"]
    r = bed.run("ftlaunch", "run", plain, *nodes34, "--", "sh", "-c", "hostname; seq 20000")
    c.eq((r.rc, r.out.count("] node0"), console.count(r.out.encode())), (0, 2, 40002), "two nodes by ProxyCommand", r.err)
    c.eq(bed.ps_within(90), [], "left behind by ProxyCommand")
    r = bed.run("ftlaunch", "run", plain, "--set", "cluster.include=node[05-06]", "--set", "ssh.jump=node04", "--", "hostname")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, ["[0 node05] node05", "[1 node06] node06"]), "a jump host by ProxyCommand", r)
    c.eq(bed.ps_within(90), [], "left behind by ProxyCommand of a jump host")
    p = ends_lib.start(bed, plain, *nodes34, "--", "sleep", "301")
    ends_lib.wait_for(c, bed, 2, "sleep 301")
    bed.reap("ssh -q -W [node03]", "head")
    ends_lib.finish(p)
    c.eq(p.rc, 125, "a ProxyCommand that is killed", p)
    c.has(p.err, "lost agent on node03", "its node is lost", p)
    c.eq(bed.ps_within(90), [], "left behind by a ProxyCommand that was killed")
    bed.write(bed.home + "/.ssh/config", conf.replace("ssh -q", "ssh -p 2299"))
    r = bed.run("ftlaunch", "run", plain, *nodes34, "--set", "ssh.timeout=2s", "--", "true")
    c.eq(r.rc, 2, "a ProxyCommand that fails", r)
    c.has(r.err, "ProxyCommand says: ssh: connect to host node01 port 2299: Connection refused", "and what it says", r)
    os.unlink(bed.home + "/.ssh/config")
    # what the bastion says
    r = bed.run("ftlaunch", "run", job, "--set", "nodes.node03=port=2299", "--set", "ssh.timeout=5s", "--", "true")
    c.eq(r.rc, 2, "a closed port behind the bastion", r)
    c.ok("node03" in r.err and "tcp" in r.err and "refused" in r.err, "its reason", r)
    back = bed.sshd("node01", "AllowTcpForwarding no")
    r = bed.run("ftlaunch", "run", job, "--", "true")
    back()
    c.eq(r.rc, 2, "a bastion that forwards nothing", r)
    c.has(r.err, "the jump host lets nobody connect to node02 port 22 (AllowTcpForwarding, PermitOpen of its sshd)", "and what to look at", r)
    r = bed.run("ftlaunch", "run", job, "--set", "ssh.jump=node01:2299", "--set", "ssh.timeout=2s", "--", "true")
    c.eq(r.rc, 2, "no bastion there", r)
    c.has(r.err, "node[02-06]", "one row for all behind it", r)
    c.has(r.err, "jump host node01: connection refused", "and why", r)
    # a bastion that is cut off and healed while the nodes behind it are reached again, with no doubled login
    prog = "[ $FT_RESTART != 0 ] || exec sleep 301; echo $FT_NODE"
    sets = ["--set", "launch.heartbeat=500ms", "--set", "launch.restarts=1", "--set", "launch.cooldown=0", "--set", "ssh.timeout=60s"]
    p = ends_lib.start(bed, job, *sets, "--", "sh", "-c", prog)
    ends_lib.wait_for(c, bed, 5, "sleep 301")
    bed.cut("node01")
    c.ok(bed.until(lambda: "attempt 1 begins" in bed.said(p), 60), "the nodes are lost", bed.said(p))
    bed.heal("node01")
    ends_lib.finish(p)
    c.eq((p.rc, sorted(l.split("] ")[1] for l in p.out.splitlines())), (0, ["node%02d" % i for i in range(2, 7)]), "a bastion that comes back", p)
    c.ok(bed.until(lambda: not [l for l in bed.ps() if "sshd: " not in l], 60), "left behind by a bastion that comes back", bed.ps())
    bed.reap("sshd: ")
    # a bastion that is lost is one message
    p = ends_lib.start(bed, job, "--", "sleep", "301")
    ends_lib.wait_for(c, bed, 5, "sleep 301")
    bed.reap("sshd: root", "node01")
    ends_lib.finish(p)
    c.eq(p.rc, 125, "bastion lost", p)
    c.eq(p.err.count("every node behind it is lost with it"), 1, "said once", p)
    c.has(p.err, "and 4 more (stream: jump host node01 was lost", "the cause", p)
    c.eq(bed.ps_within(90), [], "left behind after the loss of the bastion")
sys.exit(c.end())
