"""Runs of ftlaunch-many: N nodes that exist only as agents on this machine (transport.c, node.c), in a network of their own.

    with Many(BIN, 48) as m:             # exit 77 with the reason when something is missing
        m.start("sh", "-c", "echo $RANK")
        status = m.wait()
        m.events("node_up"); m.ended(); m.left()
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 240  # seconds that an event may take on a busy machine
NET = """ip link set lo up && ip link add eth0 type veth peer name far && ip link set far up &&
ip addr add 10.77.0.1/16 dev eth0 && ip link set eth0 up && exec "$@" """


def need(bin_dir):
    def skip(why):
        print("skipped: " + why)
        sys.exit(77)

    if os.geteuid() != 0:
        skip("needs root (namespaces)")
    for tool in ("ip", "unshare"):
        if not shutil.which(tool):
            skip("needs the command '%s'" % tool)
    if subprocess.run(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--user", "sh", "-c", "true"], stderr=subprocess.DEVNULL).returncode:
        skip("this machine does not allow namespaces")
    if subprocess.run(["unshare", "--net", "sh", "-c", NET, "sh", "true"], stderr=subprocess.DEVNULL).returncode:
        skip("no pair of network interfaces can be made here")
    if not os.path.exists(os.path.join(bin_dir, "../many/ftlaunch-many")):
        skip("ftlaunch-many is not built (it stands in for the transport ssh)")


def until(condition, limit=PATIENCE, step=0.02):
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step)


class Many:
    def __init__(self, bin_dir, n):
        need(bin_dir)
        self.n = n
        self.bin = os.path.abspath(bin_dir)
        self.names = ["n%04d" % i for i in range(1, n + 1)]
        self.folder = tempfile.mkdtemp(prefix="ftmany.", dir="/var/tmp")
        self.nodes = os.path.join("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp", os.path.basename(self.folder))
        self.fifo = os.path.join(self.folder, "fifo")
        self.job = os.path.join(self.folder, "job.ini")
        os.mkfifo(self.fifo)
        with open(self.job, "w") as f:
            f.write("[cluster]\nname = many\ntransport = ssh\n[nodes]\nn[0001-%04d] =\n[ssh]\ntimeout = %ds\n" % (n, PATIENCE))
        self.p = None

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.end()
        for folder in (self.folder, self.nodes):
            shutil.rmtree(folder, ignore_errors=True)

    def end(self):
        """Whatever still runs: the head first, then what it left."""
        if self.p and self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        for pid, _ in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(self, *program, options=(), files=None):
        """files: (soft, hard) limit of open files of the head."""
        shutil.rmtree(self.nodes, ignore_errors=True)
        os.mkdir(self.nodes)
        shutil.rmtree(os.path.join(self.folder, "runs"), ignore_errors=True)
        line = ["unshare", "--net", "sh", "-c", NET, "sh", os.path.join(self.bin, "../many/ftlaunch-many"), "run", self.job, *options]
        self.out, self.err = (os.path.join(self.folder, x) for x in ("stdout", "stderr"))
        env = dict(os.environ, FT_MANY=self.nodes, HOME=self.folder)
        env.pop("XDG_STATE_HOME", None)
        env.pop("XDG_RUNTIME_DIR", None)
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.begun = time.monotonic()
            self.p = subprocess.Popen(line + ["--"] + list(program), cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                      start_new_session=True, preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files)))

    def wait(self, limit=PATIENCE):
        try:
            return self.p.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            return "not over within %d s" % limit

    def fail_rank(self, rank, status):
        """The program for start(): that rank waits for release() and ends with that status; the others sleep."""
        return ["sh", "-c", '[ "$RANK" != %d ] || { read x <%s; exit %d; }; exec sleep 86399' % (rank, self.fifo, status)]

    def release(self):
        with open(self.fifo, "w") as f:  # waits for the reader
            f.write("go\n")

    def text(self, path):
        with open(path, errors="replace") as f:
            return f.read()

    def run_dir(self):
        runs = os.path.join(self.folder, "runs")
        names = os.listdir(runs) if os.path.isdir(runs) else []
        return os.path.join(runs, names[0]) if names else None

    def events(self, kind=None):
        try:
            with open(os.path.join(self.run_dir() or "", "events.jsonl"), "rb") as f:
                lines = [json.loads(line) for line in f.read().splitlines(True) if line.endswith(b"\n")]
        except FileNotFoundError:
            return []
        return [e for e in lines if kind is None or e["ev"] == kind]

    def log(self, rank):
        return self.text(os.path.join(self.run_dir(), "ranks", "%04d.log" % rank))

    def ended(self):
        """[(node, processes that were left there)] of the nodes that are over."""
        try:
            return [(line.split()[0], int(line.split()[1])) for line in self.text(os.path.join(self.nodes, "ended")).splitlines()]
        except FileNotFoundError:
            return []

    def processes(self):
        """(pid, name) of everything below this bed, the head too."""
        mark, found = b"FT_MANY=" + self.nodes.encode(), []
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if mark not in f.read().split(b"\0"):
                        continue
                with open("/proc/%s/comm" % pid) as f:
                    found.append((int(pid), f.read().strip()))
            except OSError:
                pass
        return found
