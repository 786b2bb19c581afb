#!/usr/bin/env python3
"""Keys and values that could be taken silently: each does what it says or is refused by its name; a secret given with --set shows nowhere."""
import pwd
from launch_lib import *

folder = tempfile.mkdtemp(prefix="ftcase-")
folders.add(folder)
runs = os.path.join(folder, "runs")


def call(*line):
    r = subprocess.run([FTLAUNCH, *line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=200)
    return r.returncode, r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")


for what, line, words in [
        ("a rank that is none for stdin", ["-n", "4", "--set", "launch.stdin=4"], ["stdin = 4", "0 to 3", "[launch] stdin"]),
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

# interface: by name, or by a network of which every node has its own name; what is not here starts nothing
status, out, err = call("run", "-n", "1", "--set", "cluster.interface=127.0.0.0/8", *show)
check("a network sets them by the node's own name", status == 0 and "=lo lo" in out, out, err)
for value, words in (("nonexist0", ["no interface nonexist0", "it has ", "lo 127.0.0.1"]), ("198.51.100.0/24", ["198.51.100.0/24", "it has ", "lo 127.0.0.1"]),
                     ("127.0.0.1", ["127.0.0.1/32"]), ("10.0.0.0/33", ["10.0.0.0/33", "10.1.0.0/16"]), ("x/24", ["x/24"]), ("a" * 16, ["15 bytes"])):
    status, out, err = call("run", "-n", "1", "--set", "cluster.interface=" + value, *show)
    check("interface " + value, status == 2 and all(w in err for w in words), status, err)
for port in ([], ["--set", "cluster.master_port=7"]):
    status, out, err = call("run", "-n", "1", "--set", "cluster.master_addr=198.51.100.9", *port, "--", "true")
    check("an address that is not here", status == 2 and all(w in err for w in ["198.51.100.9 is no address of localhost", "lo 127.0.0.1", "[cluster] master_addr", "fix:"]), status, err)
status, out, err = call("run", "-n", "1", "--set", "cluster.master_addr=127.0.0.9", "--", "sh", "-c", "echo at $MASTER_ADDR")
check("an address that is", status == 0 and "at 127.0.0.9" in out, status, out, err)

# ~ without HOME: the user database; a user that is none: said, and no folder of that name
bare = {k: v for k, v in os.environ.items() if k != "HOME"}
rows = [(dict(bare, HOME=folder), "~/x", folder + "/x"), (os.environ, "~root/x", "/root/x")]
try:
    home = pwd.getpwuid(os.getuid()).pw_dir
    rows += [(bare, "~/some/where", home + "/some/where")]
except KeyError:
    print("this user is not in the user database: ~ without HOME is not tried")
for env, value, want in rows:
    r = subprocess.run([FTLAUNCH, "run", "-n", "1", "--set", "launch.workdir=" + value + "/no-such-folder", "--", "true"], cwd=folder, env=env, capture_output=True, text=True)
    check("workdir = " + value, "working directory '%s/no-such-folder'" % want in r.stderr, r.stderr)
status, out, err = call("run", "-n", "1", "--set", "launch.run_dir=~nosuchuser/x", "--", "true")
check("a user that is none", status == 2 and "'nosuchuser'" in err and "[launch] run_dir" in err and not [n for n in os.listdir(folder) if n.startswith("~")], status, err)

# limits of open files: which, how many, how to raise it; no rank, no pid that is none
for limit in (5, 8, 12, 20, 40):
    r = subprocess.run(["sh", "-c", 'ulimit -n %d; exec "$0" run -n 4 -- true' % limit, FTLAUNCH], cwd=folder, capture_output=True, text=True, timeout=200)
    check("ulimit -n %d" % limit, r.returncode == 2 and str(limit) in r.stderr and "ulimit -" in r.stderr and "pid 0" not in r.stderr, r.returncode, r.stderr)

# what comes from outside acts on no terminal
odd = os.path.join(folder, "a\033[31mb\ndown\u0085c")
os.mkdir(odd)
for line in (["run", "-n", "1", "--", "true"], ["run", "-n", "1", "--", "\033[31mno\nsuch"], ["plan", "\033[31m.ini"], ["run", "--continue", "\033[31m"], ["\033[31m"],
             ["run", "-n", "1", "--set", "launch.\033[31m=1", "--", "true"]):
    r = subprocess.run([FTLAUNCH, *line], cwd=odd, stdin=subprocess.DEVNULL, capture_output=True, timeout=200)
    check("no control byte of %r" % line, b"\033" not in r.stderr and b"\\x1B[31m" in r.stderr or b"?[31m" in r.stderr and b"\ndown" not in r.stderr and b"\xc2\x85" not in r.stderr, r.stderr)
shutil.rmtree(odd)

# a log on a terminal: colours pass, nothing else does; to a pipe every byte is as it was written
import pty
status, out, err = call("run", "-n", "1", "--set", "cluster.name=odd", "--", "sh", "-c", r"printf '\033[31mred\033[0m \033[2Jgone\007\n'")
name = [n for n in os.listdir(runs) if n.startswith("odd-")][0]
raw = b"\033[31mred\033[0m \033[2Jgone\007"
for line in (["logs", name], ["logs", name, "--rank", "0"]):
    master, slave = pty.openpty()
    r = subprocess.run([FTLAUNCH, *line], cwd=folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, timeout=200)
    os.close(slave)
    seen = os.read(master, 4096)
    os.close(master)
    check("on a terminal: %r" % line, b"\033[31mred\033[0m \\x1B[2Jgone\\x07" in seen, seen)
    r = subprocess.run([FTLAUNCH, *line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=200)
    check("to a pipe: %r" % line, raw in r.stdout, r.stdout)

# --color, -v and -vv reach the lines of a run too
for color, want in (("always", True), ("never", False), ("auto", False)):
    status, out, err = call("run", "-n", "1", "--color", color, "--", "false")
    check("--color " + color, status == 1 and ("\033[1;31mftlaunch: error:\033[0m rank 0" in err) == want and "\033" not in err.replace("\033[1;31m", "").replace("\033[0m", ""), err)
status, out, err = call("run", "-n", "1", "-vv", "--", "true")
check("-vv shows the frames", status == 0 and "localhost: HELLO" in err and "localhost: EXIT slot 0" in err, err)
for name in ("mpi", "slurm"):
    for command in ("check", "run"):
        status, out, err = call(command, "two.ini" if os.path.exists(os.path.join(folder, "two.ini")) else "-n1", "--set", "cluster.transport=" + name, "--set", "nodes.a=slots=1", "--", "true")
        check("%s of transport = %s" % (command, name), status == 2 and "transport = %s is not in this build" % name in err, status, err)

# the value of a --set is not shown when the assignment is refused, nor a line of [env] that is none
hidden = "hid" + os.urandom(8).hex()
open(os.path.join(folder, "bad.ini"), "w").write("HF_TOKEN = %s\n[env]\nHF_TOKEN %s\n[launch]\nHF_TOKEN %s\nHF_TOKEN = %s\n" % ((hidden,) * 4))
for line, words in ((["run", "-n", "1", "--set", "env.X_TOKEN=%s\nmore" % hidden, "--", "true"], ["env.X_TOKEN", "several lines", "export X_TOKEN"]),
                    (["run", "-n", "1", "--set", "env.#ZZ=" + hidden, "--", "true"], ["env.#ZZ", "comment", "env.ZZ"]),
                    (["run", "-n", "1", "--set", "X_TOKEN=" + hidden, "--", "true"], ["X_TOKEN=…", "SECTION.KEY=VALUE"]),
                    (["run", "-n", "1", "--set", "cluster.name=%s ;x" % hidden, "--", "true"], ["cluster.name", "comment"]),
                    (["run", "bad.ini", "--", "true"], ["bad.ini:1:1", "bad.ini:3:1", "bad.ini:5:1", "bad.ini:6:1"])):
    status, out, err = call(*line)
    check("refused without its value: %r" % line, status == 2 and hidden not in err + out and all(w in err for w in words), status, err)

# Attempts fail one after another (with another status each time, so they go on) behind back-offs of 1, 2, 4 s. The deadline lies in the
# middle of the third one: how long an attempt takes here and now is measured.
again = ["--set", "launch.restarts=5", "--", "sh", "-c", "echo 1 >&$FT_PROGRESS; touch $FT_RUN_DIR/$RANK.$FT_RESTART; [ $RANK = 1 ] || exec sleep 301; "
         "until [ -e $FT_RUN_DIR/0.$FT_RESTART ]; do sleep 0.05; done; exit $((5 + FT_RESTART))"]
begin = time.monotonic()
status, out, err = call("run", "-n", "2", "--set", "launch.restarts=0", *again[2:])
check("one attempt", status == 5, status, err)
deadline = round(5 + 3 * (time.monotonic() - begin))
status, out, err = call("run", "-n", "2", "--set", "launch.deadline=%ds" % deadline, *again)
check("a deadline in the back-off", status == 124 and "the deadline of %d s passed after " % deadline in err, status, err)
check("no attempt after it", err.count("attempt 3 begins") == 1 and "ended after TERM" not in err, err)
p = subprocess.Popen([FTLAUNCH, "run", "-n", "2", *again], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
for line in p.stderr:
    if "attempt 3 begins" in line:  # in 4 s
        p.send_signal(signal.SIGINT)
        break
err = p.stderr.read()
check("INT in the back-off", p.wait(PATIENCE) == 130 and "stopped by SIGINT" in err and "ended after TERM" not in err, p.returncode, err)

broken = "x-20261201-000000-abcd"
os.mkdir(os.path.join(runs, broken))
status, out, err = call("run", "--continue", broken)
check("an empty run folder goes nowhere", status == 2 and "plan.json" in err, status, err)
status, out, err = call("ps", "--all")
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

r = subprocess.run(["sh", "-c", 'ulimit -f 8; exec "$0" run -n 2 -- sh -c "head -c 100000 /dev/zero; kill -XFSZ \\$\\$"', FTLAUNCH], cwd=folder, capture_output=True, timeout=200)
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
