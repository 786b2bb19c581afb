"""Runs of ftlaunch for the case_*.py scripts: started in a folder of their own, waited for with a deadline, and looked at
afterwards: status, summary, events, files, and what is left (process, socket, cgroup, file)."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.abspath("build/dev/bin")
FTLAUNCH = os.path.join(BIN, "ftlaunch")
PATIENCE = 90  # seconds that an event may take on a busy machine; shorter than any program here would run by itself
failures = []
folders = set()
checks = 0


def check(what, ok, *more):
    global checks
    checks += 1
    if not ok:
        failures.append(what)
        print("FAILED:", what, *more, flush=True)
    return ok


def finish():
    if not failures:  # what failed can be looked at
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    print("%d checks, %d failed" % (checks, len(failures)), flush=True)
    sys.exit(1 if failures or not checks else 0)


def processes(match):
    """(pid, command) of every process for which match(command line bytes, environment bytes) is true."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % name, "rb") as f:
                command = f.read()
            try:
                with open("/proc/%s/environ" % name, "rb") as f:
                    environ = f.read()
            except PermissionError:
                environ = b""
            with open("/proc/%s/stat" % name, "rb") as f:
                state = f.read().rsplit(b")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in (b"Z", b"X") and match(command, environ):
            found.append((int(name), command.replace(b"\0", b" ").decode("latin1").strip()))
    return found


def parent_of(pid):
    """0: it has gone."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def until(condition, limit=PATIENCE, step=0.01):
    """Waits for condition() to be true; its value, or False at the limit."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step)


class Run:
    count = 0

    def __init__(self, program, n=4, sets=(), files=(), env=None, stdin=subprocess.DEVNULL, stdout=None, stderr=None, options=(), folder=None,
                 **popen):
        Run.count += 1
        self.tag = "%d.%d" % (os.getpid(), Run.count)
        self.folder = folder or tempfile.mkdtemp(prefix="ftcase-")
        folders.add(self.folder)
        self.before = set(os.listdir(self.folder))
        self.program = program
        self.environ = dict(os.environ, LT_TAG=self.tag, LT_SLEEP="301.%s" % self.tag.replace(".", ""))
        self.environ.pop("XDG_RUNTIME_DIR", None)
        self.environ.update(env or {})
        line = [FTLAUNCH, "run", *files]
        for s in sets:
            line += ["--set", s]
        line += list(options)
        if n:
            line += ["-n", str(n)]
        if program is not None:
            line += ["--", *program]
        self.out_file = tempfile.TemporaryFile()
        self.err_file = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.p = subprocess.Popen(line, cwd=self.folder, env=self.environ, stdin=stdin, stdout=stdout or self.out_file,
                                  stderr=stderr or self.err_file, **popen)

    def wait(self, limit=PATIENCE):
        try:
            self.status = self.p.wait(limit)
        except subprocess.TimeoutExpired:
            check("the launcher returned within %d s" % limit, False, self.program)
            self.p.kill()
            self.status = self.p.wait()
        self.seconds = time.monotonic() - self.started
        return self.status

    def read(self, f):
        f.seek(0)
        return f.read()

    @property
    def out(self):
        return self.read(self.out_file)

    @property
    def err(self):
        return self.read(self.err_file).decode("utf8", "replace")

    @property
    def dir(self):
        runs = os.path.join(self.folder, "runs")
        names = sorted(os.listdir(runs), key=lambda n: os.stat(os.path.join(runs, n)).st_mtime) if os.path.isdir(runs) else []
        return os.path.join(runs, names[-1]) if names else None

    @property
    def id(self):
        return os.path.basename(self.dir) if self.dir else "none"

    def events(self, kind=None):
        try:
            with open(os.path.join(self.dir or "", "events.jsonl"), "rb") as f:
                lines = [json.loads(line) for line in f.read().splitlines(True) if line.endswith(b"\n")]
        except FileNotFoundError:
            return []
        return [e for e in lines if kind is None or e["ev"] == kind]

    def log(self, rank):
        try:
            with open(os.path.join(self.dir, "ranks", "%04d.log" % rank), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    def mine(self):
        """Processes of this run, the launcher not among them: by its mark, or by the length of its sleeps (env -i)."""
        tag, sleep = b"LT_TAG=" + self.tag.encode(), self.environ["LT_SLEEP"].encode()
        return [p for p in processes(lambda c, e: tag in e.split(b"\0") or sleep in c.split(b"\0")) if p[0] != self.p.pid]

    def agent(self):
        """(keeper, agent) of this run."""
        def find():
            all = processes(lambda c, e: c.split(b"\0")[0].endswith(b"ftlaunch-agent") and b"LT_TAG=" + self.tag.encode() in e.split(b"\0"))
            parents = {pid: parent_of(pid) for pid, _ in all}
            keepers = [pid for pid in parents if parents[pid] == self.p.pid]
            agents = [pid for pid in parents if parents[pid] in keepers]
            return (keepers[0], agents[0]) if keepers and agents else None
        return until(find)

    def sleepers(self, n, limit=PATIENCE):
        """Waits until n processes of the run sleep their long sleep."""
        sleep = self.environ["LT_SLEEP"].encode()
        found = until(lambda: (lambda v: v if len(v) >= n else None)(processes(lambda c, e: c.split(b"\0")[0].endswith(b"sleep") and sleep in c.split(b"\0"))), limit)
        check("%d sleepers came up" % n, bool(found))
        return found or []

    def left(self):
        """What is there of the run: processes, sockets, socket files, cgroups, files."""
        with open("/proc/net/unix") as f:
            sockets = [line.split()[-1] for line in f if self.id in line]
        folder = "/tmp/ftlaunch-%d" % os.getuid()
        names = [n for n in (os.listdir(folder) if os.path.isdir(folder) else []) if self.id in n]
        groups = []
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split()[4] for line in f if " - cgroup2 " in line]
        for m in mounts:
            for root, dirs, _ in os.walk(m):
                groups += [os.path.join(root, d) for d in dirs if self.id in d]
        return self.mine() + sockets + names + groups + sorted(set(os.listdir(self.folder)) - self.before - {"runs"})

    def check_clean(self, name):
        """Nothing of the run is left: process, socket, cgroup, file."""
        check(name + ": nothing is left", until(lambda: not self.left()), self.left())

    def check_end(self, name, status, *words):
        check("%s: status %d" % (name, status), self.status == status, self.status, self.err)
        for w in words:
            check("%s: the summary says '%s'" % (name, w), w in self.err, self.err)
        ends = self.events()
        check(name + ": events end with run_end", bool(ends) and ends[-1]["ev"] == "run_end", ends[-1:])
        if ends and ends[-1]["ev"] == "run_end":
            check(name + ": run_end has the status", ends[-1]["status"] == status, ends[-1])


def shell(text):
    return ["bash", "-c", text]


def kill(pid):
    """A process that was just seen may have ended by itself, above all when its neighbour was killed a moment ago."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def send(run, number):
    os.kill(run.p.pid, number)


SIG = signal
