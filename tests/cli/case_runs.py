#!/usr/bin/env python3
"""ps, logs, stop, run --continue: runs as their folders and heads tell."""
import re
from launch_lib import *


def tool(r, *words, limit=PATIENCE):
    env = dict(r.environ)
    return subprocess.run([FTLAUNCH, *words], cwd=r.folder, env=env, capture_output=True, timeout=limit, stdin=subprocess.DEVNULL)


def ps(r):
    done = tool(r, "ps", "--json")
    check("ps: status", done.returncode == 0, done)
    return {e["run"]: e for e in json.loads(done.stdout)}


r = Run(shell("echo hello $RANK; echo oops >&2; sleep $LT_SLEEP"), n=3)
r.sleepers(3)
e = ps(r)[r.id]
check("ps: alive", e["alive"] and e["state"] == "running" and e["ranks"] == 3 and e["nodes"] == 1 and e["status"] is None, e)
text = tool(r, "ps").stdout.decode()
check("ps: table", r.id in text and "running" in text, text)
done = tool(r, "run", "--continue", r.id)
check("continue: refused while it lives", done.returncode == 2 and b"lives" in done.stderr, done)
follower = subprocess.Popen([FTLAUNCH, "logs", r.id, "-f", "--rank", "1"], cwd=r.folder, env=r.environ, stdout=subprocess.PIPE)
done = tool(r, "stop", r.id)
check("stop: status", done.returncode == 0, done)
r.wait()
r.check_end("stop", 143, "stopped by ftlaunch stop", "3 ranks ended after TERM")
check("stop: cause", r.events("run_end")[0]["cause"]["kind"] == "stop")
out = follower.communicate(timeout=PATIENCE)[0]
check("logs -f: whole, and ends with the run", sorted(out.split()) == [b"1", b"hello", b"oops"] and follower.returncode == 0, out)
r.check_clean("stop")
e = ps(r)[r.id]
check("ps: failed 143", not e["alive"] and e["state"] == "failed" and e["status"] == 143, e)
done = tool(r, "stop", r.id)
check("stop: of one that has ended", done.returncode == 2 and b"has ended with status 143" in done.stderr, done)
check("stop: of none", tool(r, "stop", "nothing").returncode == 2)
check("logs: of none", tool(r, "logs", "nothing").returncode == 2)
done = tool(r, "logs", r.id)
check("logs: all ranks", sorted(done.stdout.splitlines())[::2] == [b"[0] hello 0", b"[1] hello 1", b"[2] hello 2"] and done.stdout.count(b"oops") == 3, done.stdout)
check("logs: a rank that is not there", tool(r, "logs", r.id, "--rank", "9").returncode == 2)

r = Run(shell("trap '' TERM; sleep $LT_SLEEP"), n=2, sets=["launch.grace=300s"])
r.sleepers(2)
check("stop --now: status", tool(r, "stop", "--now", r.id[-4:]).returncode == 0)
r.wait()
r.check_end("stop --now", 143, "cut by KILL")
r.check_clean("stop --now")

# a launcher that stands still, and so many connections that it takes no more: nobody waits for it for ever
import socket
r = Run(shell("sleep $LT_SLEEP"), n=2)
r.sleepers(2)
send(r, SIG.SIGSTOP)
waiting = []
while len(waiting) < 1000:
    s = socket.socket(socket.AF_UNIX)
    waiting.append(s)
    s.setblocking(False)
    try:
        s.connect("/tmp/ftlaunch-%d/%s.sock" % (os.getuid(), r.id))
    except BlockingIOError:
        break
check("stopped launcher: its queue is full", len(waiting) < 1000)
e = ps(r)[r.id]
check("ps: of a stopped launcher", e["alive"] and e["state"] == "running", e)
done = tool(r, "stop", r.id)
check("stop: of a stopped launcher", done.returncode != 0 and b"did not answer within 5000 ms" in done.stderr, done)
for s in waiting:
    s.close()
send(r, SIG.SIGCONT)
check("stop: of one that goes on", tool(r, "stop", r.id).returncode == 0)
r.wait()
r.check_end("stopped launcher", 143, "stopped by ftlaunch stop")
r.check_clean("stopped launcher")

# a dead launcher reads `died`
r = Run(shell("sleep $LT_SLEEP"), n=2)
r.sleepers(2)
r.p.kill()
r.wait()
r.check_clean("died")
e = ps(r)[r.id]
check("ps: died", e["state"] == "died" and not e["alive"], e)
done = tool(r, "stop", r.id)
check("stop: of one that died", done.returncode == 2 and b"died" in done.stderr, done)

# run --continue: a script that saves its step goes on where it was, in the same folder
SAVER = r"""
import os, sys, time
path = "state.%s" % os.environ["RANK"]
step = int(open(path).read()) if os.path.exists(path) else 0
p = os.fdopen(int(os.environ["FT_PROGRESS"]), "w", buffering=1)
print("begins at", step, "restart", os.environ["FT_RESTART"], os.environ.get("EXTRA", ""), flush=True)
while step < 6:
    step += 1
    time.sleep(0.05)
    p.write("%d\n" % step)
    open(path + ".new", "w").write(str(step))
    os.replace(path + ".new", path)
    p.write("saved %d\n" % step)
    if step == 3 and os.environ["FT_RESTART"] == "0" and os.environ["RANK"] == "1": sys.exit(5)
    if os.environ["FT_RESTART"] == "0": time.sleep(0.3)
"""
folder = tempfile.mkdtemp(prefix="ftcase-")
with open(os.path.join(folder, "job.ini"), "w") as f:
    f.write("[cluster]\nname = saver\n[env]\nEXTRA = one\n")
r = Run([sys.executable, "-S", "-c", SAVER], n=2, files=["job.ini"], folder=folder)
r.wait()
r.check_end("first attempt", 5, "rank 1 on localhost")
first = r.id
again = Run([sys.executable, "-S", "-c", "pass"], n=2, files=["job.ini"], folder=folder)
again.wait()
check("a plain run names the unfinished one", "did not finish" in again.err and "--continue %s" % first in again.err, again.err)
done = tool(r, "run", "--continue", first, "--set", "env.EXTRA=two")
check("continue: status", done.returncode == 0, done)
run = os.path.join(folder, "runs", first)
with open(os.path.join(run, "ranks", "0001.log")) as f:
    log = f.read().splitlines()
check("continue: appended, next attempt, from the saved step", log == ["begins at 0 restart 0 one", "begins at 3 restart 1 two"], log)
with open(os.path.join(run, "events.jsonl")) as f:
    events = [json.loads(line) for line in f]
starts = [e for e in events if e["ev"] == "run_start"]
check("continue: what changed is recorded", len(starts) == 2 and "env.EXTRA=two" in starts[1]["changed"] and starts[1]["attempt"] == 1, starts)
started = [e for e in events if e["ev"] == "rank_started" and e["rank"] == 1]
check("continue: offset of the log", [e["log_offset"] for e in started] == [0, len("begins at 0 restart 0 one\n")], started)
check("continue: ends with 0", events[-1]["ev"] == "run_end" and events[-1]["status"] == 0)
check("ps: done", ps(r)[first]["state"] == "done")
check("ps: step", ps(r)[first]["step"] >= 1)

# report: one page that loads nothing from elsewhere, its elements in balance, text of ranks escaped
import html.parser


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.broken, self.seen = [], [], {}

    def handle_starttag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.broken += [a for a in attrs if a[0] in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.broken.append(tag)


def page(data):
    p = Page()
    p.feed(data.decode("utf8"))
    check("report: a sound page", not p.broken and not p.open, p.broken[:5], p.open[:5])
    return p


with open(os.path.join(run, "metrics.jsonl"), "w") as f:
    for i in range(1, 2001):
        f.write(json.dumps({"step": i, "loss": 5.0 / i, "lr": 1e-3, "grad_norm": None if i == 7 else 1.0, "tokens_per_s": 1000 + i}) + "\n")
    f.write(json.dumps({"step": 2000, "eval": "valid", "loss": 0.5}) + "\n")
done = tool(r, "report", first)
check("report: status, path", done.returncode == 0 and done.stdout.decode().strip() == os.path.join(os.path.realpath(run), "report.html"), done)
with open(os.path.join(run, "report.html"), "rb") as f:
    data = f.read()
p = page(data)
check("report: curves", p.seen.get("svg") == 5 and p.seen.get("polyline") == 5, p.seen)
check("report: what ran", first.encode() in data and b"run_end" in data and b"--set env.EXTRA=two" in data)
check("report: bounded", len(data) < 200000, len(data))
bad = Run(shell('echo "<script>alert(1)</script> & \\"x\\"" >&2; exit 4'), n=2, folder=folder, files=["job.ini"])
bad.wait()
done = tool(r, "report", bad.id, first, "-o", "-")
page(done.stdout)
check("report: several, text escaped", done.returncode == 0 and b"<script>" not in done.stdout and b"&lt;script&gt;" in done.stdout and b"exit status 4" in done.stdout)
check("report: of none", tool(r, "report", "nothing").returncode == 2 and tool(r, "report").returncode == 2)
# commands on runs of another host, and on several
import shutil
there = tempfile.mkdtemp(prefix="ftcase-")
folders.add(there)
foreign = os.path.join(there, "runs", r.id)
shutil.copytree(r.dir, foreign)
with open(os.path.join(foreign, "events.jsonl")) as f:
    lines = [line for line in f.read().splitlines() if '"ev":"run_end"' not in line]
with open(os.path.join(foreign, "events.jsonl"), "w") as f:
    f.write("\n".join(re.sub(r'"host":"[^"]*"', '"host":"elsewhere"', line) for line in lines) + "\n")


def at(*words):
    return subprocess.run([FTLAUNCH, *words], cwd=there, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)


done = at("ps")
check("ps: a run of another host", r.id in done.stdout and "on elsewhere" in done.stdout, done)
for words in (["stop", r.id], ["stop", "--now", r.id]):
    done = at(*words)
    check("stop: belongs to another host", done.returncode == 2 and "belongs to host 'elsewhere'" in done.stderr, done)
done = at("logs", "-f", r.id)
check("logs -f: of a run that does not live here ends", done.returncode == 0, done)
done = at("report", r.id, foreign, "-o", "two.html")
check("report: several runs in one page", done.returncode == 0 and os.path.getsize(os.path.join(there, "two.html")) > 1000, done)
with open(os.path.join(there, "two.html"), "rb") as f:
    page(f.read())

# a run inside a run: ended in order by TERM; cut by the outer one's KILL it reads died, and nothing of it is left
def states(folder):
    p = subprocess.run([FTLAUNCH, "ps", "--json", "--all"], cwd=folder, capture_output=True, text=True)
    return {e["run"].split("-")[0]: (e["state"], e["status"]) for e in json.loads(p.stdout) if e["folder"].startswith(folder + "/")}


for what, inner, grace, want in (("in order", "sleep $LT_SLEEP", "80s", ("failed", 143)), ("cut", "trap '' TERM; sleep $LT_SLEEP; :", "2s", ("died", None))):
    r = Run(shell('exec "$INNER" run --set cluster.name=inner --set launch.grace=300s -n 2 -- bash -c "$PROGRAM"'), n=1, sets=["cluster.name=outer", "launch.grace=" + grace],
            env={"INNER": FTLAUNCH, "PROGRAM": inner})
    r.sleepers(2)
    send(r, SIG.SIGTERM)
    check("nested %s: status" % what, r.wait() == 143, r.status, r.err)
    check("nested %s: nothing is left" % what, until(lambda: not r.mine()), r.mine())
    check("nested %s: ps" % what, states(r.folder) == {"outer": ("failed", 143), "inner": want}, states(r.folder), r.err)

# runs of one second stand in the order in which they began, whatever their random ends
place = tempfile.mkdtemp(prefix="ftcase-")
folders.add(place)
want = []
for k, end in enumerate(("ffff", "8888", "0000", "aaaa", "1111")):
    name = "same-20261201-101010-" + end
    want.append(name)
    os.makedirs(os.path.join(place, "runs", name))
    with open(os.path.join(place, "runs", name, "events.jsonl"), "w") as f:
        f.write(json.dumps({"t": "2026-12-01T10:10:10.%03dZ" % (100 * k), "ev": "run_start", "attempt": 0, "run": name, "ranks": 1, "nodes": 1}, separators=(",", ":")) + "\n")
p = subprocess.run([FTLAUNCH, "ps", "--json"], cwd=place, capture_output=True, text=True)
check("ps: in order of their starts", [e["run"] for e in json.loads(p.stdout) if e["folder"].startswith(place)] == want, p.stdout)
finish()
