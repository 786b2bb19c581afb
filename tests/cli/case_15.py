#!/usr/bin/env python3
"""Case 15: standard input, background, scripts."""
import base64
import hashlib
from launch_lib import *

folder = tempfile.mkdtemp(prefix="ftcase-")
text = 'while read h; do "$1" run -q -n 1 -- echo "run $h"; done'
done = subprocess.run(["bash", "-c", text, "sh", FTLAUNCH], input=b"a\nb\nc\n", cwd=folder, capture_output=True, timeout=PATIENCE)
check("15a: three runs", done.stdout.count(b"] run ") == 3 and b"run c" in done.stdout, done.stdout, done.stderr)

MD5 = [sys.executable, "-S", "-c", "import hashlib, sys; print(hashlib.md5(sys.stdin.buffer.read()).hexdigest())"]
data = base64.b64encode(os.urandom(300000))
for name, value, ranks in (("15c", "0", 1), ("15c all", "all", 4)):
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        r = Run(MD5, stdin=f, sets=["launch.stdin=" + value])
        r.wait()
    r.check_end(name, 0)
    md5, empty = hashlib.md5(data).hexdigest().encode(), hashlib.md5(b"").hexdigest().encode()
    check(name + ": md5", r.out.count(md5) == ranks and r.out.count(empty) == 4 - ranks, r.out)
    r.check_clean(name)

with tempfile.TemporaryFile() as f:
    f.write(data)
    f.seek(0)
    r = Run([sys.executable, "-S", "-c", "import os, time; print(len(os.read(0, 10))); time.sleep(1)"], stdin=f, sets=["launch.stdin=0"])
    r.wait()
r.check_end("15c, reads 10 bytes", 0)
r.check_clean("15c, reads 10 bytes")

r = Run(["cat"])  # without stdin = …, ranks read /dev/null
r.wait()
r.check_end("15 /dev/null", 0)

# (b) from an interactive shell with `&`: never stopped by the terminal; (e) nohup, setsid, timeout
import pty
pid, fd = pty.fork()
if pid == 0:
    os.chdir(folder)
    os.execvp("bash", ["bash", "--norc", "-i"])
os.write(fd, ('"%s" run -n 2 -- sh -c "sleep 0.3; echo from the background" & wait; echo "st""atus $?"; exit\n' % FTLAUNCH).encode())
seen = b""
end = time.monotonic() + PATIENCE
while time.monotonic() < end:
    try:
        piece = os.read(fd, 4096)
    except OSError:
        break
    if not piece:
        break
    seen += piece
os.waitpid(pid, 0)
check("15b: runs in the background of a terminal", b"status 0" in seen and seen.count(b"] from the background") == 2, seen)
check("15b: not stopped", b"Stopped" not in seen, seen)

for name, line in (("nohup", ["nohup"]), ("setsid", ["setsid", "-w"]), ("timeout", ["timeout", "-k", "5", "80"])):
    done = subprocess.run(line + [FTLAUNCH, "run", "-q", "-n", "2", "--", "echo", "fine"], cwd=folder, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    check("15e: " + name, done.returncode == 0 and done.stdout.count(b"fine") == 2, done)

# nohup survives HUP
go = os.path.join(folder, "go")
r = Run(shell("until [ -e $GO ]; do sleep 0.05; done; echo survived"), env={"GO": go}, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
check("15e: the ranks run", until(lambda: r.dir and len(r.events("rank_started")) == 4))
send(r, SIG.SIGHUP)
time.sleep(0.3)  # for a launcher that would end of it
check("15e: HUP ends nothing", r.p.poll() is None)
open(go, "w").close()
r.wait()
r.check_end("15e: HUP ignored stays ignored", 0)
check("15e: its output", r.out.count(b"survived") == 4)

# closed descriptors 0-2
done = subprocess.run(["bash", "-c", '"$1" run -q -n 2 --set launch.output=files -- echo closed 0<&- 1>&- 2>&-', "sh", FTLAUNCH], cwd=folder, timeout=PATIENCE)
check("15: closed descriptors", done.returncode == 0)

# (f) many runs of true: all 0, nothing grows
times, statuses = [], set()
count = int(os.environ.get("FT_RUNS", "100"))
before = len(os.listdir("/proc"))
for i in range(count):
    t = time.monotonic()
    statuses.add(subprocess.run([FTLAUNCH, "run", "-q", "-n", "4", "--", "true"], cwd=folder, stdin=subprocess.DEVNULL, timeout=PATIENCE).returncode)
    times.append(time.monotonic() - t)
check("15f: %d times 0" % count, statuses == {0}, statuses)
times.sort()
print("15f: median %.1f ms, worst %.1f ms" % (times[count // 2] * 1e3, times[-1] * 1e3))
check("15f: no process is left", not processes(lambda c, e: c.split(b"\0")[0].endswith(b"ftlaunch-agent") and folder.encode() in e))
finish()
