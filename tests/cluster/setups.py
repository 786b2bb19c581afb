#!/usr/bin/env python3
"""Set-ups that real clusters have: homes that are read-only, folders that run nothing, sshd that allows one session or one command,
other users, ports and address families, hashed and revoked host keys, links that lose one direction."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks, sh
from ends_lib import finish, start, wait_for

c = Checks()
ONE = ["ftlaunch", "run", "--set", "cluster.transport=ssh", "--set", "ssh.timeout=30s"]


def node(n, *attributes):
    return ["--set", "nodes.node%02d=%s" % (n, " ".join(("slots=1",) + attributes))]


def good(bed, what, *argv, out=None):
    r = bed.run(*ONE, *argv, "--", "hostname")
    c.eq(r.rc, 0, what, r)
    if out:
        c.eq(sorted(r.out.splitlines()), out, "output, " + what, r)
    c.ok(bed.until(lambda: not mine(bed), 90), "left behind, " + what, mine(bed))
    return r


def mine(bed):
    """All but a second sshd of the test."""
    return [l for l in bed.ps() if "extra.conf" not in l]


def bad(bed, what, words, *argv):
    r = bed.run(*ONE, *argv, "--", "hostname")
    c.eq(r.rc, 2, what, r)
    for w in words:
        c.has(r.err, w, what, r)
    c.eq(bed.ps_within(90), [], "left behind, " + what)


def forget_agents(bed):
    """Nothing of an agent is left in any home, and none is remembered."""
    for d in ("/.cache", "/.local"):
        shutil.rmtree(bed.home + d, ignore_errors=True)


def staging(bed):
    # `node05` only: its own mounts; the agent that lies beside ftlaunch is not on its PATH
    on = lambda *argv: c.eq(bed.run(*argv, node="node05").rc, 0, " ".join(argv))
    forget_agents(bed)
    where = lambda: [d for d in ("/dev/shm", "/tmp", bed.home + "/.cache") if "ftlaunch-agent-" in bed.run("sh", "-c", "ls -R %s 2>/dev/null" % d, node="node05").out]
    on("mount", "--bind", bed.home, bed.home)
    on("mount", "-o", "remount,bind,ro", bed.home)
    good(bed, "a home that is read-only", *node(5), out=["[0 node05] node05"])
    c.eq(where(), ["/dev/shm"], "where the agent went")
    forget_agents(bed)
    on("sh", "-c", "rm -rf /dev/shm/ftlaunch-*")
    on("mount", "-o", "remount,noexec", "/dev/shm")
    good(bed, "and /dev/shm runs nothing", *node(5))
    c.ok("/tmp" in where(), "where the agent went", where())
    forget_agents(bed)
    on("sh", "-c", "rm -rf /tmp/ftlaunch-*")
    on("mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", "/tmp")
    bad(bed, "and /tmp is full", ["node05", "agent", "Install ftlaunch-agent there"], *node(5))
    on("umount", "/tmp")
    on("mount", "-o", "remount,exec", "/dev/shm")
    on("umount", bed.home)
    forget_agents(bed)


def servers(bed):
    forget_agents(bed)
    back = bed.sshd("node02", "MaxSessions 1\nMaxStartups 1:100:1")
    good(bed, "one session at a time, staged too", *node(2), out=["[0 node02] node02"])
    back()
    back = bed.sshd("node02", "ForceCommand echo nothing but this")
    bad(bed, "ForceCommand", ["node02", "agent", "nothing but this"], *node(2))
    back()
    back = bed.sshd("node02", "Subsystem sftp /nowhere/sftp-server")
    forget_agents(bed)
    bad(bed, "no sftp", ["node02", "agent", "Install ftlaunch-agent there"], *node(2))
    good(bed, "no sftp, but an agent that is there", *node(2), "--set", "ssh.agent=%s/ftlaunch-agent" % bed.bin)
    back()


def addresses(bed):
    with open(bed.home + "/.ssh/known_hosts") as f:
        known = f.read()
    more = known
    for i, name in enumerate(["head"] + bed.names):
        sh(*bed.enter(name), "ip", "addr", "add", "fd00:231::%d/64" % (i + 1), "dev", "eth0", "nodad")
        if i:
            with open("%s/%s/key.pub" % (bed.dir, name)) as f:
                key = " ".join(f.read().split()[:2])
            more += "fd00:231::%d %s\n[%s]:2222 %s\n" % (i + 1, key, name, key)
    with open(bed.home + "/.ssh/known_hosts", "w") as f:
        f.write(more)
    r = good(bed, "IPv6", *node(1, "host=fd00:231::2"), *node(2, "host=fd00:231::3"), out=["[0 node01] node01", "[1 node02] node02"])
    c.has(r.err, "MASTER_ADDR fd00:231::2 (eth0 of node01, reached by 1 of 1)", "the address that ssh used comes first", r)
    local = sh(*bed.enter("node02"), "ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").split()[3].split("/")[0]
    odd = ["--set", "ssh.host_keys=accept-new", "--set", "nodes.Node_2.a-b=host=%s%%eth0" % local]
    good(bed, "an address with a zone, a name with '_'", *odd, out=["[0 Node_2.a-b] node02"])
    bed.write(bed.dir + "/hosts", "%s node_03\n" % bed.addr("node03") + open(bed.dir + "/hosts").read())
    good(bed, "a host name with '_'", "--set", "ssh.host_keys=accept-new", "--set", "nodes.node_03=slots=1", out=["[0 node_03] node03"])
    r = good(bed, "IPv4 logins, IPv6 for the ranks", *node(1), *node(2), "--set", "cluster.interface=fd00:231::/64")
    c.has(r.err, "MASTER_ADDR fd00:231::2", "the network that was asked for", r)
    # another port, by attribute, section and ssh_config
    extra = bed.write("%s/node02/extra.conf" % bed.dir, "Port 2222\nPidFile /run/extra\nHostKey %s/node02/key\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n" % bed.dir)
    c.eq(bed.run("/usr/sbin/sshd", "-f", extra, node="node02").rc, 0, "another sshd")
    good(bed, "a port of the node", *node(2, "port=2222"))
    good(bed, "a port of the section", *node(2), "--set", "ssh.port=2222")
    bed.write(bed.home + "/.ssh/more.conf", "Host node02 two\n  Port 2222\n  HostName node02\n")
    bed.write(bed.home + "/.ssh/config", "Include more.conf\nMatch host node03 user root\n  HostName node02\n  Port 2222\n")
    good(bed, "a port of an included file", *node(2), out=["[0 node02] node02"])
    good(bed, "an alias of it", "--set", "nodes.two=slots=1", out=["[0 two] node02"])
    good(bed, "a Match", *node(3), out=["[0 node03] node02"])
    os.unlink(bed.home + "/.ssh/config")
    bed.run("sh", "-c", "kill $(cat /run/extra)", node="node02")
    # hashed names, a revoked key, an authority
    with open(bed.home + "/.ssh/known_hosts", "w") as f:
        f.write(known)
    sh("ssh-keygen", "-q", "-H", "-f", bed.home + "/.ssh/known_hosts")
    good(bed, "hashed known_hosts", *node(1), *node(2))
    with open("%s/node02/key.pub" % bed.dir) as f:
        key = " ".join(f.read().split()[:2])
    with open(bed.home + "/.ssh/known_hosts", "w") as f:
        f.write(known + "@revoked * %s\n" % key)
    for keys in ("strict", "accept-new", "off"):
        bad(bed, "a revoked key with " + keys, ["hostkey", "REVOKED"], *node(2), "--set", "ssh.host_keys=" + keys)
    with open(bed.home + "/.ssh/known_hosts", "w") as f:
        f.write("@cert-authority * %s\n" % key)
    bad(bed, "host certificates", ["hostkey", "@cert-authority", "not built"], *node(2))
    with open(bed.home + "/.ssh/known_hosts", "w") as f:
        f.write(known)


def users(bed):
    # another user on one node; the head's run folder is closed to it, so it has its own
    home = bed.dir + "/ml"
    os.makedirs(home + "/.ssh")
    shutil.copy(bed.home + "/.ssh/authorized_keys", home + "/.ssh/authorized_keys")
    sh("chown", "-R", "4242:4242", home)
    os.chmod(home + "/.ssh", 0o700)
    path = "%s/node03/passwd" % bed.dir
    with open(path, "w") as f:
        f.write("root:x:0:0:root:%s:/bin/bash\nml:x:4242:4242::%s:/bin/sh\n" % (bed.home, home))
        f.writelines(l for l in bed.passwd if not l.startswith("ml:"))
    sh(*bed.enter("node03"), "mount", "--bind", path, "/etc/passwd")
    bed.run("sh", "-c", "mkdir -p runs && mount -t tmpfs -o mode=1777 tmpfs runs", node="node03")
    r = bed.run(*ONE, *node(2), *node(3, "user=ml"), "--", "id", "-u")
    c.eq((r.rc, sorted(r.out.splitlines())), (0, ["[0 node02] 0", "[1 node03] 4242"]), "another user on one node", r)
    bed.run("umount", "runs", node="node03")
    r = bed.run(*ONE, *node(2), *node(3, "user=ml"), "--", "id", "-u")
    c.eq(r.rc, 2, "a run folder that is closed to that user", r)
    c.ok("node03: run folder" in r.err, "it is named", r)
    c.eq(bed.ps_within(90), [], "left behind by two users")


def one_way(bed):
    """The link of a node loses one direction only: the node hears the head but is not heard, and the other way round."""
    job = bed.write("oneway.ini", "[cluster]\ntransport = ssh\n[launch]\nheartbeat = 500ms\n[nodes]\nnode[01-03] = slots=1\n")
    for what, at, to in (("a node that is not heard", "node02", "head"), ("a node that does not hear", "head", "node02")):
        p = start(bed, job, "--", "sleep", "301")
        wait_for(c, bed, 3, "sleep 301")
        route = ["blackhole", bed.addr(to) + "/32"]
        c.eq(bed.run("ip", "route", "add", *route, node=at).rc, 0, "packets are lost")
        finish(p)
        c.eq(p.rc, 125, what, p)
        c.has(p.err, "lost agent on node02", what, p)
        c.ok(bed.until(lambda: not [l for l in bed.ps() if "sshd: " not in l], 90), "left behind by " + what, bed.ps())
        bed.run("ip", "route", "del", *route, node=at)
        bed.reap("sshd: ")


PARTS = {"staging": staging, "servers": servers, "addresses": addresses, "users": users, "one_way": one_way}
with Bed(5) as bed:
    for part in sys.argv[2:] or PARTS:
        PARTS[part](bed)
sys.exit(c.end())
