#!/usr/bin/env python3
"""ftlaunch check over ssh: every problem of every node in one run, facts compared, nothing started and nothing left."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks, sh

c = Checks()
SRC = os.environ["FT_SOURCE"]


def check(bed, what, status, *argv):
    r = bed.run("ftlaunch", "check", *argv)
    c.eq(r.rc, status, what, r)
    c.eq(bed.ps_within(90), [], "left running after " + what)
    c.ok(not os.path.exists(bed.work + "/runs"), "no folder of a run after " + what)
    return r


with Bed(5) as bed:
    job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[launch]\nspare_nodes = 1\n[nodes]\nnode[01-05] = slots=1\n")
    r = check(bed, "a sound cluster", 0, job, "--", "true")
    c.eq(r.out, "no fault: job job, 4 ranks on 4 nodes, transport ssh\n", "it says so in a line", r)
    c.has(r.err, "reached by 4 of 4", "the spare was looked at too", r)
    before = {n: sh(*bed.enter(n), "find", "/tmp", "/dev/shm", bed.home, "-type", "f") for n in bed.names}
    r = check(bed, "a second look", 0, job, "--json", "--", "true")
    after = {n: sh(*bed.enter(n), "find", "/tmp", "/dev/shm", bed.home, "-type", "f") for n in bed.names}
    c.eq(after, before, "files on the nodes")
    v = json.loads(r.out)
    c.eq((v["schema"], v["faults"], v["cluster"]["differ"]), (1, [], []), "check --json", r)
    c.eq([n["name"] for n in v["cluster"]["nodes"]], bed.names, "its nodes", r)
    c.ok(all(n["reached"] and n["facts"]["cores"] == str(len(os.sched_getaffinity(0))) and "kernel" in n["facts"] for n in v["cluster"]["nodes"]), "their facts", r)

    # what set what
    bed.write(bed.home + "/.ssh/config", "Host node0[3-5] node03 node04 node05\n  Port 22\nHost *\n  User root\n")
    r = check(bed, "-v", 0, job, "-v", "--set", "ssh.timeout=20s", "--", "true")
    conf = bed.home + "/.ssh/config"
    c.has(r.out, "set     ssh.timeout = 20s (--set)\n", "a value of --set", r)
    c.has(r.out, "set     launch.spare_nodes = 1 (%s:4:15)\n" % job, "a value of the file", r)
    c.has(r.out, "reached node[01-02]  port 22 (default), user root (%s:4)" % conf, "a value of ssh_config", r)
    c.has(r.out, "reached node[03-05]  port 22 (%s:2), user root (%s:4)" % (conf, conf), "another one", r)
    c.has(r.out, "equal   node[01-05] cores ", "what is equal", r)
    os.unlink(conf)

    # everything wrong at once: a node that refuses, a folder and a program that are missing, another program, a way back that is shut
    os.makedirs(bed.work + "/here")
    shutil.copy("/bin/true", bed.work + "/here/prog")
    shutil.copy("/bin/false", bed.work + "/other")
    bed.run("mount", "-t", "tmpfs", "tmpfs", bed.work + "/here", node="node02")  # the folder is there, the program is not
    bed.run("mount", "--bind", bed.work + "/other", bed.work + "/here/prog", node="node03")
    bed.run("ip", "route", "add", "blackhole", bed.addr("node04") + "/32", node="node01")
    argv = (job, "--set", "nodes.node05=port=2299", "--set", "launch.spare_nodes=0", "--set", "launch.workdir=%s/here" % bed.work, "--set", "ssh.timeout=6s", "--", "./prog")
    r = check(bed, "several faults", 2, *argv)
    c.has(r.err, "error: node05: not reached: tcp: connection refused", "a closed port", r)
    c.has(r.err, "error: node02: program './prog': No such file or directory", "a program that is not there", r)
    c.has(r.err, "not by node04", "a way that is shut", r)
    c.has(r.err, "error: node04: not reached from node01 (tried %s): ranks connect both ways" % bed.addr("node04"), "and back", r)
    c.eq(r.err.count("ftlaunch: error:"), 4, "each once", r)
    c.eq(r.err.count("  where: "), 3, "with its place", r)
    c.has(r.out, "differ  node[01,04] program ./prog ", "another program is seen", r)
    bed.run("ip", "route", "del", "blackhole", bed.addr("node04") + "/32", node="node01")
    # only one way is shut: node04 lets no connection in that node01 begins
    a, way = bed.addr("node01"), None
    syn = "match ip src %s/32 match ip protocol 6 0xff match u8 0x02 0x12 at 33" % a
    ways = (("nft 'add table ip ft; add chain ip ft in { type filter hook input priority 0; }; add rule ip ft in ip saddr %s tcp flags & (syn | ack) == syn drop'" % a,
             "nft delete table ip ft"),
            ("iptables -A INPUT -s %s -p tcp --syn -j DROP" % a, "iptables -D INPUT -s %s -p tcp --syn -j DROP" % a),
            ("tc qdisc add dev eth0 ingress && tc filter add dev eth0 parent ffff: protocol ip u32 %s action drop" % syn, "tc qdisc del dev eth0 ingress"))
    for shut, again in ways:
        if bed.run("sh", "-c", shut, node="node04").rc == 0:
            way = shut.split()[0]
            r = check(bed, "one way only, by " + way, 2, job, "--", "true")
            c.has(r.err, "reached by 4 of 4", "the way to the first node is open", r)
            c.has(r.err, "error: node04: not reached from node01", "the other is not", r)
            c.eq(r.err.count("ftlaunch: error:"), 1, "one fault", r)
        bed.run("sh", "-c", again, node="node04")
        if way:
            break
    else:
        print("NOT TESTED: a way that is shut in one direction: neither nft nor iptables nor tc can drop a packet here")
    bed.run("umount", bed.work + "/here", node="node02")
    bed.run("umount", bed.work + "/here/prog", node="node03")
    r = check(bed, "equal faults", 2, job, "--", "./nothing")
    c.has(r.err, "error: node[01-05]: program './nothing': No such file or directory", "equal ones are one", r)
    c.eq(r.err.count("ftlaunch: error:"), 1, "and one only", r)

    # fttrain looks at model and data where they are
    with open(SRC + "/examples/01_laptop/job.ini") as f:
        text = f.read().replace("examples/", SRC + "/examples/").replace("transport   = local", "transport   = ssh")
    train = bed.write("train.ini", text.replace("localhost   = slots=2", "node[01-02] = slots=1"))
    check(bed, "a training job", 0, train)
    line = [i for i, l in enumerate(text.splitlines(), 1) if l.startswith("path ")][0]
    bed.write("broken.ini", text.replace("localhost   = slots=2", "node[01-02] = slots=1").replace("01_laptop/model", "01_laptop/nowhere"))
    r = check(bed, "a model that is not there", 2, bed.work + "/broken.ini")
    c.has(r.err, "error: node01: cannot read '%s/examples/01_laptop/nowhere/config.json'" % SRC, "said once, of the node that looked", r)
    c.has(r.err, "broken.ini:%d:" % line, "with the place in the job", r)
    r = bed.run("ftlaunch", "run", bed.work + "/broken.ini")
    c.eq(r.rc, 2, "run finds it too", r)
    c.ok("nothing was started: node01: cannot read" in r.err and "broken.ini:%d:" % line in r.err, "before any rank", r)
    c.eq(bed.ps_within(90), [], "left running after a refused run")
sys.exit(c.end())
