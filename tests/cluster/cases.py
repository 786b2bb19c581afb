#!/usr/bin/env python3
"""Environment, output, signals and standard input, exactly, on four nodes over ssh."""
import glob
import hashlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli")]
import console
from bed import Bed, Checks
from ends_lib import finish, start

c = Checks()
JOB = "[cluster]\ntransport = ssh\n[nodes]\nnode[01-04] = slots=1\n"


def folder(bed, p):
    return "%s/runs/%s" % (bed.work, bed.events(p)[0]["run"])


def started(bed, p, n=4):
    return c.ok(bed.until(lambda: len([e for e in bed.events(p) if e["ev"] == "rank_started"]) == n, 120), "%d ranks were started" % n)


def files(run):
    for d, _, names in os.walk(run):
        for n in names:
            with open(os.path.join(d, n), "rb") as f:
                yield os.path.join(d, n), f.read()


def environment(bed):
    values = {"LINES2": b"a\nb\n", "QUOTES": b"'\"", "HOME2": b"$HOME `id` \\", "SLURM2": b"64(x2)", "JSON": b'{"a":[1,"b"]}', "EQ": b"a=b=c", "EMPTY": b"",
              "BYTES": b"\xff\xfe\x80", "LONG": b"x" * 120000, "BASH_FUNC_m%%": b"() { echo m; }", "HF_TOKEN": b"very-secret-7141"}
    text = JOB + "[env]\n" + "".join("%s = ${%s}\n" % (k, k) for k in values) + "".join("V%d = %s\n" % (i, "v" * 45) for i in range(2000))
    text += "[env node02]\nONE = two\n[env node[03-04]]\nONE = many\n"
    job = bed.write("env.ini", text)
    given = {os.fsencode(k): v for k, v in values.items()}
    given.update({b"SSH_CONNECTION": b"1 2 3 4", b"SLURM_NTASKS": b"9", b"SLURM_PROCID": b"3"})
    env = {os.fsencode(k): os.fsencode(v) for k, v in bed.env().items()}
    env.update(given)
    # what every rank has: one line per variable, name and md5 of the value; it waits, so that command lines can be looked at
    prog = bed.write("show.py", "import os, hashlib, sys, time\nopen(os.environ['FT_RUN_DIR'] + '/at' + os.environ['RANK'], 'w').close()\n"
                     "while not os.path.exists(os.environ['FT_RUN_DIR'] + '/go'): time.sleep(0.05)\n"
                     "for k, v in sorted(os.environb.items()): print(os.fsdecode(k), hashlib.md5(v).hexdigest())\n")
    p = subprocess.Popen(bed.enter("head") + ["ftlaunch", "run", job, "--set", "launch.output=files", "--", "python3", prog], env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    bed.others.append(p)
    p.t = 0
    started(bed, p)
    lines = []
    for q in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % q, "rb") as f:
                lines.append(f.read())
        except OSError:
            pass
    c.ok(not any(b"very-secret" in l or b"vvvvv" in l for l in lines), "no environment on any command line")
    run = folder(bed, p)
    bed.write(run + "/go", "")
    finish(p)
    c.eq(p.rc, 0, "9", p)
    for r in range(4):
        with open("%s/ranks/%04d.log" % (run, r)) as f:
            have = dict(l.split() for l in f)
        bad = [k for k, v in values.items() if have.get(k) != hashlib.md5(v).hexdigest()]
        c.eq(bad, [], "variables of rank %d that are not as given" % r)
        c.eq(sum(k.startswith("V") and k[1:].isdigit() for k in have), 2000, "many small ones, rank %d" % r)
        c.eq([k for k in have if k.startswith("SSH_") or k in ("SLURM_NTASKS", "SLURM_PROCID")], [], "nothing of logins and outer steps, rank %d" % r)
        c.eq(have.get("ONE"), {0: None, 1: hashlib.md5(b"two").hexdigest()}.get(r, hashlib.md5(b"many").hexdigest()), "[env RANGE] at rank %d" % r)
    c.eq([n for n, b in files(run) if b"very-secret" in b], [], "files that hold the token")
    with open(run + "/job.ini", errors="replace") as f:
        c.has(f.read(), "HF_TOKEN = ${HF_TOKEN}", "the resolved job")
    # a value that no program could be given: before anything is contacted
    big = bed.write("big.ini", JOB + "[env]\nBIG = " + "b" * 200000 + "\n")
    r = bed.run("ftlaunch", "run", big, "--", "true")
    c.ok(r.rc == 2 and "131071" in r.err.replace(",", "") and re.search("200,?00[0-9]", r.err), "9: 200,000 bytes", r)
    c.eq([e for e in bed.events(r) if e["ev"] == "node_up"], [], "9: nothing was contacted")


def output(bed):
    job = bed.write("job.ini", JOB)
    # no newline in a megabyte, from two ranks at once
    r = bed.run("ftlaunch", "run", job, "--", "sh", "-c", "[ $RANK -gt 1 ] || head -c 1000000 /dev/zero | tr '\\0' $RANK", timeout=300)
    c.eq(r.rc, 0, "11c", r.err)
    for k in (0, 1):
        first, more = "[%d node%02d] " % (k, k + 1), "[%d node%02d]+ " % (k, k + 1)
        mine = [l for l in r.out.splitlines() if l.startswith((first, more))]
        c.eq([len(mine) > 10, mine[0].startswith(first), all(l.startswith(more) for l in mine[1:])], [True] * 3, "pieces of rank %d" % k)
        c.eq("".join(l.split(" ", 2)[2] for l in mine), str(k) * 1000000, "its bytes")
    # any bytes, both streams in turn: the file has them in order
    blob = bytes(range(256)) * 40
    with open(bed.work + "/blob", "wb") as f:
        f.write(blob)
    p = start(bed, job, "--set", "launch.output=files", "--", "sh", "-c", "cat blob; echo; echo out; echo err >&2; cat blob")
    finish(p)
    c.eq(p.rc, 0, "11d", p)
    for r in range(4):
        with open("%s/ranks/%04d.log" % (folder(bed, p), r), "rb") as f:
            have = f.read()
        c.eq(have.replace(b"err\n", b""), blob + b"\nout\n" + blob, "file of rank %d" % r)
        c.eq(have.count(b"err\n"), 1, "its stderr")
    # both streams in turn: each keeps its order, on the console and in the file
    p = start(bed, job, "--", "sh", "-c", "i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done")
    finish(p)
    c.eq(p.rc, 0, "11e", p)
    for r in range(4):
        with open("%s/ranks/%04d.log" % (folder(bed, p), r)) as f:
            have = f.read().splitlines()
        for stream, shown in (("out", p.out), ("err", p.err)):
            want = ["%s %d" % (stream, i) for i in range(300)]
            c.eq([l for l in have if l.startswith(stream)], want, "11e: %s of rank %d in its file" % (stream, r))
            mark = "[%d node%02d] " % (r, r + 1)
            c.eq([l[len(mark):] for l in shown.splitlines() if l.startswith(mark)], want, "11e: %s of rank %d on the console" % (stream, r))
        c.eq(len(have), 600, "11e: nothing else in the file of rank %d" % r)
    # 64 ranks say the same: 64 whole lines (gathering is not built and says so)
    many = bed.write("many.ini", JOB.replace("slots=1", "slots=16"))
    r = bed.run("ftlaunch", "run", many, "--", "echo", "the same line of every rank", timeout=300)
    want = ["[%d node%02d] the same line of every rank" % (k, k // 16 + 1) for k in range(64)]
    c.eq((r.rc, sorted(r.out.splitlines())), (0, sorted(want)), "11g", r)
    r = bed.run("ftlaunch", "run", many, "--set", "launch.gather=yes", "--", "true")
    c.ok(r.rc == 2 and "gather" in r.err, "11g: gather = yes", r)
    # a reader of 100 KB a second: memory stays bounded, nothing is lost
    p = start(bed, job, "--", "sh", "-c", "seq 1 150000")
    pieces, peak = [], 0
    while True:
        piece = p.stdout.read1(32768)
        if not piece:
            break
        pieces.append(piece)
        with open("/proc/%d/status" % p.pid) as f:
            for l in f:
                if l.startswith("VmHWM"):
                    peak = max(peak, int(l.split()[1]))
    finish(p)
    c.eq((p.rc, console.count(b"".join(pieces))), (0, 600000), "11f", p)
    c.ok(peak < (32 << 10) + 256 * 4, "memory of the launcher: %d KiB" % peak)


def signals(bed):
    job = bed.write("job.ini", JOB)
    saver = bed.write("saver.py", """import os, signal, sys, time
me = os.environ['FT_RUN_DIR'] + '/' + os.environ['RANK']
counts = [0, 0]
def on(n, f): counts[n == signal.SIGTERM] += 1
for n in (signal.SIGUSR1, signal.SIGTERM): signal.signal(n, on)
open(me, 'w').close()
while not counts[1]:
    time.sleep(0.05)
    open(me + '.usr1', 'w').write(str(counts[0]))
for i in range(int(sys.argv[1])):
    time.sleep(0.2)
    open(me + '.steps', 'a').write('x')
""")

    def begin(steps, *sets):
        p = start(bed, job, *sets, "--", "python3", saver, str(steps))
        started(bed, p)
        run = folder(bed, p)
        c.ok(bed.until(lambda: all(os.path.exists("%s/%d" % (run, r)) for r in range(4)), 120), "every rank waits for signals")
        return p, run

    def steps(run):
        out = []
        for r in range(4):
            try:
                out.append(os.path.getsize("%s/%d.steps" % (run, r)))
            except OSError:
                out.append(0)
        return out

    p, run = begin(10, "--set", "launch.grace=100s")
    # USR1 twice: exactly two per rank
    for n in (1, 2):
        os.kill(p.pid, signal.SIGUSR1)
        counts = lambda: [open(f).read() for f in sorted(glob.glob(run + "/*.usr1"))]
        c.ok(bed.until(lambda: counts() == [str(n)] * 4, 60), "13d USR1 number %d" % n, counts())
    os.kill(p.pid, signal.SIGTERM)
    finish(p)
    c.eq((p.rc, steps(run)), (143, [10] * 4), "13a: everyone saves to the end", p)
    c.has(p.err, "4 ranks ended after TERM, last after", "13a", p)
    p, run = begin(600, "--set", "launch.grace=1s")
    os.kill(p.pid, signal.SIGTERM)
    finish(p)
    c.eq(p.rc, 143, "13b", p)
    c.ok(max(steps(run)) < 100, "13b: cut after the grace", steps(run))
    c.has(p.err, "ranks 0-3 cut by KILL", "13b: and who", p)
    p, run = begin(600, "--set", "launch.grace=100s")
    os.kill(p.pid, signal.SIGINT)
    c.ok(bed.until(lambda: min(steps(run)) > 0, 60), "13c: they save")
    os.kill(p.pid, signal.SIGINT)
    finish(p)
    c.eq(p.rc, 130, "13c: a second INT", p)
    c.ok(p.s < 100, "13c: ends them at once", p)
    c.eq(bed.ps_within(90), [], "left behind after 13")
    # behind a shell that stays
    p = start(bed, job, "--", "bash", "-c", "python3 %s 1; echo done" % saver)
    started(bed, p)
    run = folder(bed, p)
    c.ok(bed.until(lambda: all(os.path.exists("%s/%d" % (run, r)) for r in range(4)), 120), "every rank waits")
    os.kill(p.pid, signal.SIGUSR1)
    c.ok(bed.until(lambda: counts() == ["1"] * 4, 60), "13d behind bash", counts())
    os.kill(p.pid, signal.SIGTERM)
    finish(p)
    c.eq(p.rc, 143, "13d: the job had gone on", p)


def on_terminal(bed, *lines):
    """An interactive shell on a terminal of its own, at the head: its pid and the terminal."""
    argv = bed.enter("head") + ["bash", "--norc", "-i"]
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, bed.env())
    for l in lines:
        os.write(fd, l.encode() + b"\n")
    return pid, fd


def rest_of(fd, seconds=120):
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            piece = os.read(fd, 4096)
        except OSError:  # the last process has left the terminal
            return seen.decode(errors="replace")
        if not piece:
            break
        seen += piece
    return seen.decode(errors="replace") + "(the test waited too long)"


def terminal(bed, job):
    # 15b: in the background of a terminal that stops whoever writes to it or reads from it
    run = "ftlaunch run %s %%s -- sh -c '%%secho from the background' & wait -f $!; echo st''atus $?" % job
    pid, fd = on_terminal(bed, "stty tostop", run % ("", "read x; "), run % ("--set launch.stdin=0", ""), "exit")
    seen = rest_of(fd)
    os.waitpid(pid, 0)
    os.close(fd)
    c.eq((seen.count("status 0"), seen.count("] from the background"), seen.count("Stopped")), (2, 8, 0), "15b", seen)
    # 15e: the terminal is closed; nohup stays, without it the run ends in order
    for how, status in (("nohup ", 0), ("", 129)):
        flag = "%s/closed%d" % (bed.work, status)
        line = "%sftlaunch run %s -- sh -c 'until [ -e %s ]; do sleep 0.05; done' > %s.log 2>&1 & echo at''$!" % (how, job, flag, flag)
        pid, fd = on_terminal(bed, line)
        seen = []
        read = lambda: select.select([fd], [], [], 0.1)[0] and seen.append(os.read(fd, 4096).decode(errors="replace"))
        said = lambda: re.search(r"at(\d+)\r", "".join(seen))
        if not c.ok(bed.until(lambda: said() or read() or said(), 60), "15e: it is started", seen):
            return
        p = types.SimpleNamespace(pid=int(said().group(1)))
        started(bed, p)
        os.close(fd)
        os.waitpid(pid, 0)
        if not status:
            bed.write(flag, "")
        ended = lambda: [e["status"] for e in bed.events(p) if e["ev"] == "run_end"]
        c.ok(bed.until(lambda: ended(), 60), "15e: %srun on a closed terminal ends" % how, bed.events(p))
        c.eq(ended(), [status], "15e: %srun on a closed terminal" % how)
        c.eq(bed.ps_within(20), [], "left behind by a closed terminal")


def thousand(bed):
    """15f. Seconds decide about its second half: by name only."""
    job = bed.write("job.ini", JOB)
    processes = lambda: sum(len(list(bed.all_of(n))) for n in ["head"] + bed.names)  # the dead too
    files = lambda: sorted(bed.run("sh", "-c", "find /tmp /dev/shm /run -type f", node="node02").out.split())
    seconds, before = [], []
    for i in range(1000):
        r = bed.run("ftlaunch", "run", job, "-q", "--set", "launch.run_dir=%s/runs%d" % (bed.work, i % 7), "--", "true")
        seconds.append(r.s)
        if not c.eq((r.rc, r.out, r.err), (0, "", ""), "15f run %d" % i, r):
            break
        if i == 20:
            c.eq(bed.ps_within(20), [], "15f: left behind")
            before = processes(), files()
    c.eq(bed.ps_within(20), [], "15f: left behind")
    c.ok(bed.until(lambda: processes() <= before[0], 20), "15f: processes of nodes and head", before[0], processes())
    c.eq(files(), before[1], "15f: files of a node")
    seconds.sort()
    c.ok(seconds[-1] <= 3 * seconds[len(seconds) // 2], "15f: the slowest of 1,000 took %.2f s, the median %.2f s" % (seconds[-1], seconds[len(seconds) // 2]))
    print("1,000 runs: median %.3f s, slowest %.3f s" % (seconds[len(seconds) // 2], seconds[-1]))


def stdin(bed):
    job = bed.write("job.ini", JOB)
    terminal(bed, job)
    r = bed.run("sh", "-c", "printf 'a\\nb\\nc\\n' | while read h; do ftlaunch run -q %s -- sh -c 'cat >/dev/null; [ $RANK != 0 ] || echo got '$h; done" % job)
    c.eq((r.rc, r.out), (0, "[0 node01] got a\n[0 node01] got b\n[0 node01] got c\n"), "15a", r)
    with open("/dev/urandom", "rb") as f:
        blob = f.read(300000)
    with open(bed.work + "/in", "wb") as f:
        f.write(blob)
    with open(bed.work + "/in", "rb") as f:
        r = bed.run("ftlaunch", "run", job, "--set", "launch.stdin=0", "--", "sh", "-c", "md5sum", stdin=f)
    empty = hashlib.md5(b"").hexdigest()
    want = ["[0 node01] %s  -" % hashlib.md5(blob).hexdigest()] + ["[%d node%02d] %s  -" % (k, k + 1, empty) for k in (1, 2, 3)]
    c.eq((r.rc, sorted(r.out.splitlines())), (0, want), "15c", r)
    with open(bed.work + "/in", "rb") as f:
        r = bed.run("ftlaunch", "run", job, "--set", "launch.stdin=0", "--", "sh", "-c", "head -c 10 > /dev/null; exec <&-; sleep 0.5", stdin=f)
    c.eq(r.rc, 0, "15c: a rank that stops reading", r)
    for how in (["nohup"], ["setsid", "-w"], ["timeout", "-k", "5", "200"]):
        r = bed.run(*how, "ftlaunch", "run", job, "--", "true")
        c.eq(r.rc, 0, "15e " + how[0], r)
    c.eq(bed.ps_within(90), [], "left behind after 15")


PARTS = {"environment": environment, "output": output, "signals": signals, "stdin": stdin}
ASKED = {"thousand": thousand}  # by name only
with Bed(4) as bed:
    for part in sys.argv[2:] or PARTS:
        {**PARTS, **ASKED}[part](bed)
sys.exit(c.end())
