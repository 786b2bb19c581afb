#!/usr/bin/env python3
"""Environment, output, signals and standard input, exactly, on four nodes over ssh."""
import glob
import hashlib
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
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
    text = JOB + "[env]\n" + "".join("%s = ${%s}\n" % (k, k) for k in values) + "".join("V%d = %s\n" % (i, "v" * 45) for i in range(500))
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
        c.eq(sum(k.startswith("V") and k[1:].isdigit() for k in have), 500, "many small ones, rank %d" % r)
        c.eq([k for k in have if k.startswith("SSH_") or k in ("SLURM_NTASKS", "SLURM_PROCID")], [], "nothing of logins and outer steps, rank %d" % r)
        c.eq(have.get("ONE"), {0: None, 1: hashlib.md5(b"two").hexdigest()}.get(r, hashlib.md5(b"many").hexdigest()), "[env RANGE] at rank %d" % r)
    c.eq([n for n, b in files(run) if b"very-secret" in b], [], "files that hold the token")
    with open(run + "/job.ini", errors="replace") as f:
        c.has(f.read(), "HF_TOKEN = ${HF_TOKEN}", "the resolved job")


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
    # a reader of 100 KB a second: memory stays bounded, nothing is lost
    p = start(bed, job, "--", "sh", "-c", "seq 1 150000")
    seen, peak = 0, 0
    while True:
        piece = p.stdout.read1(32768)
        if not piece:
            break
        seen += piece.count(b"\n")
        with open("/proc/%d/status" % p.pid) as f:
            for l in f:
                if l.startswith("VmHWM"):
                    peak = max(peak, int(l.split()[1]))
    finish(p)
    c.eq((p.rc, seen), (0, 600000), "11f", p)
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
    c.eq(bed.ps_within(20), [], "left behind after 13")
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


def stdin(bed):
    job = bed.write("job.ini", JOB)
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
    c.eq(bed.ps_within(20), [], "left behind after 15")


PARTS = {"environment": environment, "output": output, "signals": signals, "stdin": stdin}
with Bed(4) as bed:
    for part in sys.argv[2:] or PARTS:
        PARTS[part](bed)
sys.exit(c.end())
