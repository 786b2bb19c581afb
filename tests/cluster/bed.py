"""N nodes on one machine: each has its own network, host name, mounts, processes and a real sshd; all hang on one bridge in a
namespace of its own, so the machine's interfaces, addresses and routes are not touched. `head` is where ftlaunch is started.

    with Bed(4) as bed:                  # skips (exit 77, reason printed) when something is missing
        r = bed.run("ftlaunch", "run", job, "--", "true")
        bed.cut("node02"); bed.heal("node02"); bed.kill("node03"); bed.freeze("node01"); bed.thaw("node01")
        assert bed.ps() == []

Where the kernel can, every node has a monotonic clock of its own (bed.clocks: a time namespace each, hours apart), as machines that were
booted at different times have. The root user of the bed has a home of its own (bed.home, seen by all nodes like an NFS home) with a throw-away key and a
known_hosts; the rest of the file system is the machine's. Everything is removed at the end, also after a failure."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SSHD = "/usr/sbin/sshd"
SLEEP = "86399"  # of the inits; tells them from payloads


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def need():
    if os.geteuid() != 0:
        skip("needs root (network namespaces)")
    for tool in ("ip", "unshare", "nsenter", "bridge", "ssh-keygen", "mount"):
        if not shutil.which(tool):
            skip("needs the command '%s'" % tool)
    if not os.path.exists(SSHD):
        skip("needs openssh-server")
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL).returncode:
        skip("this machine does not allow namespaces")


def sh(*argv, **kw):
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180, **kw)
    if r.returncode:
        raise RuntimeError("%s: %s" % (" ".join(argv), r.stdout.decode(errors="replace")))
    return r.stdout.decode()


def parent_of(pid):
    """0: it has gone."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def send(pid, number):
    """A process that was just seen may have ended by itself, above all when its neighbour was killed a moment ago."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


INIT = """
name=$1 ip=$2 dir=%(dir)s
mount --make-rprivate /
hostname "$name"
if [ "$name" != head ]; then
  mkdir -p $dir/$name/tree && mount --bind %(tree)s $dir/$name/tree # the checkout stays where it is, below /tmp too
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  mkdir -p %(tree)s && mount --bind $dir/$name/tree %(tree)s
  mount -t tmpfs -o mode=0755 tmpfs /run; mkdir -p /run/sshd /run/lock
fi
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
cat /proc/sys/kernel/random/uuid > $dir/$name/boot
mount --bind $dir/$name/boot /proc/sys/kernel/random/boot_id
mount --bind $dir/hosts /etc/hosts
mount --bind $dir/passwd /etc/passwd
mount --bind $dir/empty /etc/resolv.conf 2>/dev/null
ip link set lo up
ip addr add $ip/20 brd + dev eth0
ip link set eth0 up
if [ "$name" != head ]; then
  %(sshd)s -D -f $dir/$name/sshd_config -E $dir/$name/sshd.log &
  n=0; while [ ! -s /run/sshd.pid ] && [ $n -lt 6000 ]; do sleep 0.01; n=$((n+1)); done
fi
echo ok > $dir/$name/ready
while :; do sleep %(sleep)s & wait; done
"""

SSHD_CONFIG = """Port 22
HostKey %(dir)s/%(name)s/key
PidFile /run/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
Subsystem sftp internal-sftp
%(more)s
"""


class Bed:
    def __init__(self, n, maxstartups=None, sshd_more="", bin_dir=None):
        need()
        self.n = n
        self.names = ["node%02d" % i for i in range(1, n + 1)]
        self.tag = "ftb%d" % os.getpid()
        self.dir = tempfile.mkdtemp(prefix="ftbed.", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.home = self.dir + "/home"
        self.work = self.dir + "/work"
        self.bin = os.path.abspath(bin_dir or sys.argv[1])
        self.more = sshd_more + ("\nMaxStartups " + maxstartups if maxstartups else "")
        self.pids = {}
        self.inits = {}
        self.others = []
        own = ["unshare", "--time", "--monotonic", "1000", "--boottime", "1000", "--fork", "true"]
        self.clocks = subprocess.run(own, stderr=subprocess.DEVNULL).returncode == 0

    # ---- life ----

    def __enter__(self):
        atexit.register(self.down)
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(s, lambda *a: sys.exit(1))
        self.make_files()
        self.make_net()
        for name in ["head"] + self.names:
            self.start(name)
        for name in ["head"] + self.names:
            self.wait_ready(name)
        return self

    def __exit__(self, *a):
        self.down()

    def addr(self, name):
        i = 0 if name == "head" else self.names.index(name) + 2
        return "10.231.%d.%d" % (i // 250, i % 250 + 1)

    def make_files(self):
        for name in ["head"] + self.names:
            os.makedirs("%s/%s" % (self.dir, name))
        os.makedirs(self.work)
        os.makedirs(self.home + "/.ssh", mode=0o700)
        open(self.dir + "/empty", "w").close()
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bed", "-f", self.home + "/.ssh/id_ed25519")
        shutil.copy(self.home + "/.ssh/id_ed25519.pub", self.home + "/.ssh/authorized_keys")
        with open("/etc/passwd") as f:
            lines = [l for l in f if not l.startswith("root:")]
        self.passwd = lines
        with open(self.dir + "/passwd", "w") as f:
            f.write("root:x:0:0:root:%s:/bin/bash\n" % self.home)
            f.writelines(lines)
        with open(self.dir + "/hosts", "w") as f:
            f.write("127.0.0.1 localhost\n::1 ip6-localhost\n%s head\n" % self.addr("head"))
            for name in self.names:
                f.write("%s %s\n" % (self.addr(name), name))
        known = ""
        for name in self.names:
            key = "%s/%s/key" % (self.dir, name)
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key)
            with open(key + ".pub") as f:
                known += "%s,%s %s\n" % (name, self.addr(name), " ".join(f.read().split()[:2]))
            with open("%s/%s/sshd_config" % (self.dir, name), "w") as f:
                f.write(SSHD_CONFIG % {"dir": self.dir, "name": name, "more": self.more})
        with open(self.home + "/.ssh/known_hosts", "w") as f:
            f.write(known)
        with open(self.dir + "/init", "w") as f:
            tree = os.path.realpath(os.environ["FT_SOURCE"])
            f.write(INIT % {"dir": self.dir, "sshd": SSHD, "sleep": SLEEP, "tree": tree})

    def ns(self, name):
        return "%s.%s" % (self.tag, name)

    def make_net(self):
        for name in ["switch", "head"] + self.names:
            sh("ip", "netns", "add", self.ns(name))
        sw = ["ip", "-n", self.ns("switch")]
        sh(*sw, "link", "set", "lo", "up")
        sh(*sw, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
        sh(*sw, "link", "set", "br0", "up")
        for name in ["head"] + self.names:
            sh(*sw, "link", "add", self.port(name), "type", "veth", "peer", "name", "eth0", "netns", self.ns(name))
            sh(*sw, "link", "set", self.port(name), "master", "br0", "up")

    def port(self, name):
        return "p" + (name if name == "head" else str(self.names.index(name) + 1))

    def start(self, name):
        argv = ["ip", "netns", "exec", self.ns(name), "unshare", "--mount", "--uts", "--ipc"]
        if name != "head":
            argv += ["--pid", "--fork", "--mount-proc", "--kill-child"]
            ahead = str(3600 * (self.names.index(name) + 1))
            argv += ["--time", "--monotonic", ahead, "--boottime", ahead] if self.clocks else []
        for f in ("ready",):
            if os.path.exists("%s/%s/%s" % (self.dir, name, f)):
                os.unlink("%s/%s/%s" % (self.dir, name, f))
        log = open("%s/%s/init.log" % (self.dir, name), "ab")
        self.inits[name] = subprocess.Popen(argv + ["/bin/sh", self.dir + "/init", name, self.addr(name)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self, name):
        end = time.time() + 120
        p = self.inits[name]
        while not os.path.exists("%s/%s/ready" % (self.dir, name)):
            if time.time() > end or p.poll() is not None:
                raise RuntimeError("%s does not come up: %s" % (name, open("%s/%s/init.log" % (self.dir, name)).read()))
            time.sleep(0.01)
        pid = p.pid
        if name != "head":
            with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                pid = int(f.read().split()[0])
        self.pids[name] = pid

    def down(self):
        for p in self.others:
            if p.poll() is None:
                p.kill()
        mine = set()
        try:
            out = sh("ip", "netns", "list")
        except RuntimeError:
            out = ""
        spaces = [l.split()[0] for l in out.splitlines() if l.startswith(self.tag + ".")]
        for s in spaces:
            try:
                mine.add("net:[%d]" % os.stat("/run/netns/" + s).st_ino)
            except OSError:
                pass
        for _ in range(5):
            found = False
            for q in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if os.readlink("/proc/%s/ns/net" % q) in mine and int(q) != os.getpid():
                        os.kill(int(q), signal.SIGKILL)
                        found = True
                except OSError:
                    pass
            if not found:
                break
            time.sleep(0.05)
        for p in self.inits.values():
            p.wait()
        for s in spaces:
            subprocess.run(["ip", "netns", "del", s], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)
        atexit.unregister(self.down)

    # ---- use ----

    def enter(self, name):
        argv = ["nsenter", "-t", str(self.pids[name]), "-m", "-u", "-i", "-n"]
        if name != "head":
            argv += ["-p"] + (["-T"] if self.clocks else [])
        return argv + ["-W", self.work, "--"]

    def env(self, **more):
        keep = {k: v for k, v in os.environ.items() if k in ("LANG", "TERM", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")}
        keep.update({"HOME": self.home, "PATH": self.bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER": "root"})
        keep.update(more)
        return keep

    def popen(self, *argv, node="head", env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        p = subprocess.Popen(self.enter(node) + list(argv), env=self.env(**(env or {})), **kw)
        self.others.append(p)
        return p

    def run(self, *argv, node="head", timeout=240, env=None, **kw):
        """A result with rc, out, err, s (seconds)."""
        t = time.monotonic()
        p = self.popen(*argv, node=node, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += b"\n(the test killed it after %d s)" % timeout
        p.out, p.err, p.rc, p.s = out.decode(errors="replace"), err.decode(errors="replace"), p.returncode, time.monotonic() - t
        return p

    def write(self, name, text, mode=0o644):
        path = name if name.startswith("/") else self.work + "/" + name
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    # ---- faults ----

    def state(self, name, value):
        sh("ip", "netns", "exec", self.ns("switch"), "bridge", "link", "set", "dev", self.port(name), "state", str(value))

    def cut(self, name):
        self.state(name, 0)

    def heal(self, name):
        self.state(name, 3)

    def delay(self, name, ms):
        """Everything that leaves or reaches this node takes so much longer each way (0: as before). False: this machine has no netem."""
        if not shutil.which("tc"):
            return False
        dev = ["dev", self.port(name)]
        subprocess.run(["tc", "-n", self.ns("switch"), "qdisc", "del", *dev, "root"], stderr=subprocess.DEVNULL)
        add = ["tc", "-n", self.ns("switch"), "qdisc", "add", *dev, "root", "netem", "delay", "%dms" % ms]
        return not ms or subprocess.run(add, stderr=subprocess.DEVNULL).returncode == 0

    def kill(self, name):
        self.cut(name)
        os.kill(self.pids[name], signal.SIGKILL)
        self.inits[name].wait(timeout=20)

    def boot(self, name):
        self.heal(name)
        self.start(name)
        self.wait_ready(name)

    def all_of(self, name):
        try:
            uts = os.readlink("/proc/%d/ns/uts" % self.pids[name])
        except FileNotFoundError:  # without power
            return
        for q in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/ns/uts" % q) == uts:
                    yield int(q)
            except OSError:
                pass

    def freeze(self, name, s=signal.SIGSTOP):
        for q in self.all_of(name):
            send(q, s)

    def thaw(self, name):
        self.freeze(name, signal.SIGCONT)

    def ps(self, *names):
        """What runs on the nodes (head too) beside their init and sshd: list of "node pid command"."""
        out = []
        for name in names or ["head"] + self.names:
            for q in self.all_of(name):
                try:
                    with open("/proc/%d/cmdline" % q, "rb") as f:
                        a = f.read().decode(errors="replace").split("\0")[:-1]
                except OSError:
                    continue
                text = " ".join(a)
                if not a or q == self.pids[name] or q == self.inits[name].pid or text == "sleep " + SLEEP:
                    continue
                if text.startswith("sshd: %s -D" % SSHD) or text.startswith(SSHD + " -D"):
                    continue
                out.append("%s %d %s" % (name, q, text))
        return out

    def reap(self, text, *names):
        """Kills what ps shows with this text on these nodes (all but the head; never instead of checking)."""
        for l in self.ps(*(names or self.names)):
            if text in l:
                send(int(l.split()[1]), signal.SIGKILL)

    def ps_within(self, seconds):
        """What is still there after at most so many seconds."""
        end = time.monotonic() + seconds
        while True:
            left = self.ps()
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.02)

    def agent(self, node):
        """The agent of a run on a node: the one whose parent, the keeper, is of the same program, and the keeper's parent is not (what the
        agent has just forked is of it too)."""
        pids = [int(l.split()[1]) for l in self.ps(node) if "ftlaunch-agent" in l]
        for pid in pids:
            if parent_of(pid) in pids and parent_of(parent_of(pid)) not in pids:
                return pid
        raise RuntimeError("no agent on %s: %s" % (node, self.ps(node)))

    def events(self, p):
        """What a run has recorded so far: p of popen or run."""
        for run in os.listdir(self.work + "/runs") if os.path.isdir(self.work + "/runs") else []:
            try:
                with open("%s/runs/%s/events.jsonl" % (self.work, run)) as f:
                    lines = [l for l in f if l.endswith("\n")]
            except OSError:
                continue
            if any('"pid":%d,' % p.pid in l for l in lines if '"ev":"run_start"' in l):
                return [json.loads(l) for l in lines]
        return []

    def until(self, cond, seconds):
        """Waits for something; at most so many seconds."""
        end = time.monotonic() + seconds
        while not cond():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def said(self, p):
        """What a run that lives has said so far (its launch.log)."""
        for run in os.listdir(self.work + "/runs") if os.path.isdir(self.work + "/runs") else []:
            path = "%s/runs/%s/" % (self.work, run)
            try:
                with open(path + "events.jsonl") as f:
                    if '"pid":%d,' % p.pid in f.readline():
                        with open(path + "launch.log") as g:
                            return g.read()
            except OSError:
                pass
        return ""

    def sshd(self, name, text):
        """Other settings of a node's sshd, before those of the bed. Returns what takes them back."""
        path = "%s/%s/sshd_config" % (self.dir, name)
        with open(path) as f:
            before = f.read()

        def listens():
            with open("%s/%s/sshd.log" % (self.dir, name)) as f:
                return f.read().count("Server listening")

        def use(what):
            with open(path, "w") as f:
                f.write(what)
            n = listens()
            if not self.until(lambda: self.run("sh", "-c", "kill -HUP $(cat /run/sshd.pid)", node=name).rc == 0, 60) or not self.until(lambda: listens() > n, 60):
                raise RuntimeError("sshd of %s does not read its file again" % name)

        use(text + "\n" + (before.replace("Subsystem sftp internal-sftp", "") if "Subsystem" in text else before))
        return lambda: use(before)

    def shell(self, name, shell, home=None):
        """Another login shell (and home) on one node."""
        path = "%s/%s/passwd" % (self.dir, name)
        with open(path, "w") as f:
            f.write("root:x:0:0:root:%s:%s\n" % (home or self.home, shell))
            f.writelines(self.passwd)
        sh(*self.enter(name), "mount", "--bind", path, "/etc/passwd")


class Checks:
    """Assertions that go on and count; end() gives the exit status."""

    def __init__(self):
        self.n = self.bad = 0

    def ok(self, cond, what, *about):
        self.n += 1
        if not cond:
            self.bad += 1
            print("FAIL: " + what)
            for a in about:
                if hasattr(a, "rc"):
                    a = "status %s after %.1f s\n--- stdout\n%s--- stderr\n%s" % (a.rc, a.s, a.out[-3000:], a.err[-3000:])
                print("   " + str(a).replace("\n", "\n   "))
            sys.stdout.flush()
        return cond

    def eq(self, have, want, what, *about):
        return self.ok(have == want, "%s: %r, not %r" % (what, have, want), *about)

    def has(self, text, part, what, *about):
        return self.ok(part in text, "%s: no %r in it" % (what, part), *(about or (text,)))

    def end(self):
        print("%d checks, %d failed" % (self.n, self.bad))
        return 1 if self.bad or not self.n else 0
