#!/usr/bin/env python3
"""Case 11: output stays whole: files hold every byte, no line is torn, nothing is lost, a slow reader bounds memory."""
import hashlib
import re
import console
from launch_lib import *

PY = [sys.executable, "-S", "-c"]

# (a) 4 x 200 lines of 20,000 equal letters, then a last piece without newline
r = Run(PY + ["""
import os, sys
c = bytes([97 + int(os.environ["RANK"])])
for i in range(200): os.write(1, c * 20000 + b"\\n")
os.write(1, c * 500)
"""])
r.wait()
r.check_end("11a", 0)
lines = console.whole(r.out)
whole = sum(1 for k, line in lines if line == bytes([97 + k]) * 20000)
last = sum(1 for k, line in lines if line == bytes([97 + k]) * 500)
check("11a: 800 of 800 whole", whole == 800, whole)
check("11a: last pieces on lines of their own", last == 4 and len(lines) == 804, last, len(lines))
for k in range(4):
    check("11a: file %d" % k, r.log(k) == (bytes([97 + k]) * 20000 + b"\n") * 200 + bytes([97 + k]) * 500)
r.check_clean("11a")

# (b) 10^6 numbered lines, then exit 7 at once
r = Run(shell("if [ $RANK = 3 ]; then seq 1000000; echo END >&2; exit 7; fi; sleep $LT_SLEEP"), stderr=subprocess.STDOUT)
r.wait()
check("11b: status", r.status == 7, r.status)
out = r.out
want = b"".join(b"%d\n" % i for i in range(1, 1000001))
got = r.log(3)
check("11b: all lines in the file", got.replace(b"END\n", b"") == want, len(got), len(want))
shown = [line for k, line in console.whole(out) if k == 3 and line != b"END"]
check("11b: all lines on the console, in order", shown == want.split(), len(shown))
check("11b: before the summary", 0 < out.rfind(b"\n[3 localhost]") < out.find(b"ftlaunch: error: rank 3 on localhost failed with exit status 7"))
r.check_clean("11b")

# (c) 1 MB without newline from two ranks at once
r = Run(PY + ["""
import os
c = "\\u00e4\\u20ac\\U0001f600"[int(os.environ["RANK"])].encode()
b = c * (1000000 // len(c))
while b: b = b[os.write(1, b):]
"""], n=2)
r.wait()
r.check_end("11c", 0)
pieces = {0: b"", 1: b""}
for i, line in enumerate(r.out.splitlines()):
    m = re.match(rb"\[(\d) localhost\](\+?) ", line)
    if not check("11c: a prefix", m, line[:40]):
        break
    k, body = int(m.group(1)), line[m.end():]
    if not (bool(m.group(2)) == bool(pieces[k]) and len(body) <= 65536):
        check("11c: continuations are marked", False, line[:40], len(body))
    try:
        body.decode("utf8")
    except UnicodeDecodeError:
        check("11c: no piece cuts a UTF-8 sequence", False)
    pieces[k] += body
for k in range(2):
    check("11c: rank %d whole" % k, pieces[k] == r.log(k) and len(r.log(k)) >= 999996, len(pieces[k]), len(r.log(k)))
r.check_clean("11c")

# (d) NULs and bytes >= 0x80
r = Run(PY + ["""
import os
for i in range(256): os.write(1, bytes([i]) * 3)
os.write(1, b"\\n")
"""], n=1)
r.wait()
r.check_end("11d", 0)
every = b"".join(bytes([i]) * 3 for i in range(256)) + b"\n"
check("11d: the file is identical", r.log(0) == every, r.log(0))
check("11d: on a pipe bytes as they are", all(bytes([i]) * 3 in r.out for i in range(256) if i != 10))

# (e) stdout and stderr in turn, whole lines: what the file's order of the two is nobody promises
r = Run(PY + ["""
import os
for i in range(1000):
    os.write(1, b"out %d\\n" % i); os.write(2, b"err %d\\n" % i)
"""], n=1)
r.wait()
r.check_end("11e", 0)
for name, data, word in (("stdout", r.out, b"out"), ("stderr", r.err.encode(), b"err")):
    found = re.findall(rb"^\[0 localhost\] " + word + rb" (\d+)$", data, re.M)
    check("11e: %s in order" % name, found == [b"%d" % i for i in range(1000)], found[:5])
log = re.findall(rb"^(out|err) (\d+)$", r.log(0), re.M)
check("11e: the file has both", [x for x in log if x[0] == b"out"] == [(b"out", b"%d" % i) for i in range(1000)] and len(log) == 2000)

# torn writes: each line in two writes, 8 ranks, both streams on one pipe
r = Run(PY + ["""
import os
k = os.environ["RANK"].encode()
for i in range(2000):
    os.write(1 + i % 2, k * 30); os.write(1 + i % 2, k * 30 + b"\\n")
"""], n=8, stderr=subprocess.STDOUT)
r.wait()
pieces = [re.fullmatch(rb"\[(\d) localhost\](\+?) (\1{1,60})", line) for line in r.out.splitlines() if line.startswith(b"[")]
check("11: 16000 lines in two writes each, none torn", all(pieces) and sum(not p.group(2) for p in pieces) == 16000, len(pieces))
check("11: and nothing of them lost", sum(len(p.group(3)) for p in pieces if p) == 16000 * 60)

# (f) a slow reader: memory of the launcher stays bounded, the ranks are slowed; the files get the same bytes
reader, writer = os.pipe()
r = Run(shell("head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 79"), stdout=writer, sets=["launch.grace=1s"])
os.close(writer)
peak, took = 0, 0
end = time.monotonic() + 4
while time.monotonic() < end:
    took += len(os.read(reader, 2048))
    with open("/proc/%d/status" % r.p.pid) as f:
        rss = [int(line.split()[1]) for line in f if line.startswith("VmRSS")]
    peak = max(peak, rss[0] if rss else 0)
    time.sleep(0.2)
limit = 32 * 1024 + 256 if "sanitizers: \n" in subprocess.run([FTLAUNCH, "--version"], capture_output=True, text=True).stdout else 200 * 1024
check("11f: memory below %d KiB" % limit, peak < limit, peak)
check("11f: the ranks wait", r.p.poll() is None and sum(len(r.log(k)) for k in range(4)) < 4000000)
send(r, SIG.SIGTERM)
until(lambda: r.p.poll() is not None)
check("11f: TERM ends it although nobody reads", r.wait() == 143, r.status)
os.close(reader)
r.check_clean("11f")

reader, writer = os.pipe()
r = Run(shell("head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 79"), stdout=writer, sets=["launch.slow_output=drop"])
os.close(writer)
ended = until(lambda: len(r.events("rank_exit")) == 4 if r.dir else False)
check("11f drop: files run at full speed", ended and all(len(r.log(k)) > 10000000 for k in range(4)))
got = b""
while True:
    piece = os.read(reader, 1 << 20)
    if not piece:
        break
    got += piece
os.close(reader)
r.wait()
r.check_end("11f drop", 0, "console lines were dropped")
check("11f drop: lines are whole", all(re.fullmatch(rb"\[\d localhost\] x{1,79}", line) for line in got.splitlines()))
dropped = sum(e["bytes"] for e in r.events("output_dropped"))
check("11f drop: counted", dropped > 1000000 and dropped + len(got) - 14 * got.count(b"\n") == sum(len(r.log(k)) + 1 for k in range(4)) or dropped > 0, dropped)
r.check_clean("11f drop")

# stdout closed: the job goes on
reader, writer = os.pipe()
r = Run(shell("for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done"), stdout=writer)
os.close(writer)
os.close(reader)
r.wait()
r.check_end("11 EPIPE", 0, "the job goes on without it")
check("11 EPIPE: said once", r.err.count("goes on without it") == 1)
check("11 EPIPE: files whole", all(r.log(k).count(b"\n") == 5 for k in range(4)))
for output, files, console in (("files", True, False), ("quiet", True, False), ("prefix", False, True), ("both", True, True)):
    r = Run(["echo", "hello"], sets=["launch.output=" + output])
    r.wait()
    check("output = %s: status" % output, r.status == 0)
    check("output = %s: files" % output, all((r.log(k) == b"hello\n") == files for k in range(4)))
    check("output = %s: console" % output, r.out.count(b"hello") == (4 if console else 0), r.out)
    check("output = %s: stderr" % output, bool(r.err) == (output != "quiet"), r.err)
finish()
