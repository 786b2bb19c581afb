#!/usr/bin/env python3
"""Keys and values that could be taken silently: each does what it says or is refused by its name; a secret given with --set shows nowhere."""
from launch_lib import *

folder = tempfile.mkdtemp(prefix="ftcase-")
folders.add(folder)
runs = os.path.join(folder, "runs")


def call(*line):
    r = subprocess.run([FTLAUNCH, *line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return r.returncode, r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")


for what, line, words in [
        ("a rank that is none for stdin", ["-n", "4", "--set", "launch.stdin=4"], ["stdin = 4", "0 to 3", "[launch] stdin"]),
        ("cooldown", ["-n", "4", "--set", "launch.cooldown=1m"], ["cooldown", "not built yet", "set it to 0"]),
        ("more ranks than a node may have", ["-n", "4097"], ["4097", "1..4096"])]:
    status, out, err = call("run", *line, "--", "true")
    check("refused: " + what, status == 2 and all(w in err for w in words), status, err)
    check("no run folder: " + what, not os.path.exists(runs) or not os.listdir(runs))
status, out, err = call("run", "-n", "4", "--set", "launch.stdin=3", "--set", "launch.cooldown=0", "--", "true")
check("the last rank may read stdin", status == 0, status, err)

show = ["--", "sh", "-c", "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME"]
status, out, err = call("run", "-n", "1", "--set", "cluster.interface=lo", *show)
check("interface sets NCCL's and GLOO's", status == 0 and "=lo lo" in out, out, err)
status, out, err = call("run", "-n", "1", "--set", "cluster.interface=lo", "--set", "env.GLOO_SOCKET_IFNAME=mine", *show)
check("[env] wins over interface", status == 0 and "=lo mine" in out, out, err)
status, out, err = call("run", "-n", "1", "--", "")
check("an empty program name", status == 127 and "program ''" in err, status, err)

again = ["--set", "launch.restarts=5"]
status, out, err = call("run", "-n", "2", *again, "--set", "launch.deadline=500ms", "--", "sh", "-c", "[ $RANK = 1 ] && exit 5; sleep 301")
check("a deadline in the back-off", status == 124 and "the deadline of 0.5 s passed after 0." in err, status, err)
check("no attempt after it", err.count("attempt 1 begins") == 1 and "ended after TERM" not in err, err)
p = subprocess.Popen([FTLAUNCH, "run", "-n", "2", *again, "--", "sh", "-c", "[ $RANK = 1 ] && exit 5; sleep 301"], cwd=folder, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
for line in p.stderr:
    if "attempt 1 begins" in line:
        p.send_signal(signal.SIGINT)
        break
err = p.stderr.read()
check("INT in the back-off", p.wait(20) == 130 and "stopped by SIGINT" in err and "ended after TERM" not in err, p.returncode, err)

broken = "x-20261201-000000-abcd"
os.mkdir(os.path.join(runs, broken))
status, out, err = call("run", "--continue", broken)
check("an empty run folder goes nowhere", status == 2 and "plan.json" in err, status, err)
status, out, err = call("ps")
check("ps of it", [line.split() for line in out.splitlines() if broken in line] == [[broken, "died", "-", "-", "-", "0.0"]], out)
os.rmdir(os.path.join(runs, broken))

with open(os.path.join(folder, "two.ini"), "w") as f:
    f.write("[cluster]\nslots = 2\n")
for what, sets, program, words in [
        ("a program that is not there", [], "nonexistent-program", ["program 'nonexistent-program'", "not found in PATH"]),
        ("a program that is none", [], "./two.ini", ["program './two.ini'", "Permission denied"]),
        ("PATH of [env]", ["env.PATH=/nonexistent"], "true", ["program 'true'", "not found in PATH"]),
        ("all of them", ["launch.workdir=/nonexistent", "launch.run_dir=two.ini/x"], "true", ["working directory '/nonexistent'", "'two.ini/x': Not a directory"])]:
    status, out, err = call("check", "two.ini", *[w for s in sets for w in ("--set", s)], "--", program)
    check("check finds " + what, status == 2 and all(w in err for w in words), status, out, err)
status, out, err = call("check", "two.ini", "--set", "launch.run_dir=not/yet/there", "--set", "launch.workdir=runs", "--", "true")
check("check of a job that runs", status == 0 and not os.path.exists(os.path.join(folder, "not")), status, err)
status, out, err = call("run", "two.ini", "--", "sh", "-c", "exit 4\n\ttrue")
check("one line for the command", "sh -c exit 4  true" in err, err)

r = subprocess.run(["sh", "-c", 'ulimit -f 8; exec "$0" run -n 2 -- sh -c "head -c 100000 /dev/zero; kill -XFSZ \\$\\$"', FTLAUNCH], cwd=folder, capture_output=True, timeout=60)
check("a limit on file sizes is no end", r.returncode == 128 + signal.SIGXFSZ and b"File too large" in r.stderr and b"SIGXFSZ" in r.stderr, r.returncode, r.stderr)

secret = "s3cr" + os.urandom(8).hex()
with open(os.path.join(folder, "job.ini"), "w") as f:
    f.write("[cluster]\nname = sec\n[launch]\nsecrets = MINE\n")
sets = ["--set", "env.X_TOKEN=" + secret, "--set=env.api_key=" + secret, "--set", "env.MINE=" + secret, "--set", "env.OPEN=visible"]
status, out, err = call("run", "job.ini", *sets, "--", "sh", "-c", 'test "$X_TOKEN$api_key$MINE" = "%s" || exit 9; exit 7' % "$X_TOKEN$X_TOKEN$X_TOKEN", "--set", "env.A_KEY=its own")
check("ranks get the values", status == 7, status, err)
name = [n for n in os.listdir(runs) if n.startswith("sec-")][0]
status, out, err = call("run", "--continue", name, "--set", "env.X_TOKEN=" + secret)
check("goes on", status == 7, status, err)
status, out, err = call("report", name)
check("report", status == 0, status, err)
for root, _, files in os.walk(os.path.join(runs, name)):
    for n in files:
        if n == "job.ini":  # private, and what the run is started again from
            continue
        with open(os.path.join(root, n), errors="replace") as f:
            text = f.read()
        check("no secret in " + n, secret not in text, text[:2000])
        if n == "events.jsonl":
            first = json.loads(text.splitlines()[0])["argv"]
            check("the line is whole but for them", first[2:9] == ["--set", "env.X_TOKEN=***", "--set=env.api_key=***", "--set", "env.MINE=***", "--set", "env.OPEN=visible"]
                  and first[-1] == "env.A_KEY=its own", first)
            check("changes", [e["changed"] for e in map(json.loads, text.splitlines()) if "changed" in e] == ["--set env.X_TOKEN=***"])
finish()
