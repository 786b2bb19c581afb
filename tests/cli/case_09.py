#!/usr/bin/env python3
"""Case 9: the environment, exactly: values by bytes, nothing of it where it does not belong."""
import hashlib
from launch_lib import *

values = {
    b"V_NEWLINE": b"one\ntwo\n", b"V_QUOTES": b"it's \"quoted\"", b"V_HOME": b"$HOME", b"V_BACK": b"`id` $(id)", b"V_SLASH": b"tail\\",
    b"V_X": b"64(x2)", b"V_JSON": b'{"a": [1, "b;c"], "#": null}', b"V_EQ": b"a=b=c", b"V_EMPTY": b"", b"V_BYTES": bytes(range(1, 256)),
    b"V_BIG": b"x" * 120000, b"BASH_FUNC_m%%": b"() { echo hi; }",
}
values.update({b"MANY_%04d" % i: b"%050d" % i for i in range(2000)})
secret = b"hf_" + hashlib.md5(os.urandom(16)).hexdigest().encode()

folder = tempfile.mkdtemp(prefix="ftcase-")
with open(os.path.join(folder, "env.ini"), "wb") as f:
    f.write(b"[env]\n")
    for name in values:
        f.write(name + b" = ${" + (b"BASH_FUNC_m%%" if b"%" in name else name) + b"}\n")
    f.write(b"HF_TOKEN = ${HF_TOKEN}\n")
env = {k.decode("latin1"): v for k, v in values.items()}
names = [n.decode() for n in values]
PROGRAM = [sys.executable, "-S", "-c", """
import hashlib, os, sys
e = os.environb
for line in open(sys.argv[1], "rb").read().split(b"\\0"):
    print("md5", line.decode("latin1"), hashlib.md5(e[line]).hexdigest() if line in e else "missing")
print("md5 HF_TOKEN", hashlib.md5(e.get(b"HF_TOKEN", b"")).hexdigest())
for k in e:
    if k.startswith(b"SSH_") or k in (b"SLURM_NTASKS", b"SLURM_PROCID", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"SUDO_USER"): print("stray", k.decode())
print("job facts", e.get(b"SLURM_JOB_ID", b"").decode(), flush=True)
import time
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
""", os.path.join(folder, "names"), os.path.join(folder, "looked")]
with open(os.path.join(folder, "names"), "wb") as f:
    f.write(b"\0".join(values))

full = dict(os.environb)
full.update(values)
full.update({b"HF_TOKEN": secret, b"SSH_CONNECTION": b"1.2.3.4 5 6.7.8.9 22", b"SLURM_NTASKS": b"9", b"SLURM_PROCID": b"3", b"SLURM_JOB_ID": b"77",
             b"OMPI_COMM_WORLD_RANK": b"5", b"PMI_RANK": b"4", b"SUDO_USER": b"x", b"RANK": b"99", b"FT_RESTART": b"8"})
r = Run(PROGRAM, files=["env.ini"], folder=folder, sets=["cluster.transport=local"], env=None, options=[])
r.p.kill()  # the real one below: bytes cannot go through Run's text environment
r.wait()
r.check_clean("9: the one that was cut")
for name in set(os.listdir(folder)) - {"env.ini", "names"}:
    shutil.rmtree(os.path.join(folder, name))

out = tempfile.TemporaryFile()
err = tempfile.TemporaryFile()
p = subprocess.Popen([FTLAUNCH, "run", "env.ini", "-n", "4", "--set", "cluster.transport=local", "--"] + PROGRAM, cwd=folder, env=full, stdin=subprocess.DEVNULL,
                     stdout=out, stderr=err)
shows = lambda: processes(lambda c, e: secret in c or b"V_BIG" in c or b"0" * 46 in c)
secrets_on_command_lines = 0
ranks = lambda: len(processes(lambda c, e: os.path.join(folder, "looked").encode() in c.split(b"\0") and not c.startswith(FTLAUNCH.encode())))
end = time.monotonic() + PATIENCE
while p.poll() is None and ranks() < 4 and time.monotonic() < end:
    secrets_on_command_lines += len(shows())
    time.sleep(0.02)
check("9: four ranks are there to be looked at", ranks() == 4)
secrets_on_command_lines += len(shows())
open(os.path.join(folder, "looked"), "w").close()
try:
    p.wait(PATIENCE)
except subprocess.TimeoutExpired:
    p.kill()
    p.wait()
check("9: ended", p.returncode == 0, p.returncode, err.seek(0) or err.read()[:2000])
out.seek(0)
lines = out.read().decode("latin1").splitlines()
for name, value in list(values.items()) + [(b"HF_TOKEN", secret)]:
    want = "md5 %s %s" % (name.decode("latin1"), hashlib.md5(value).hexdigest())
    n = sum(1 for line in lines if line.split("] ", 1)[1] == want)
    if not name.startswith(b"MANY_") or n != 4:
        check("9: %s at every rank" % name.decode(), n == 4, n)
check("9: nothing stray", not [line for line in lines if "stray" in line], [line for line in lines if "stray" in line])
check("9: job facts stay", sum("job facts 77" in line for line in lines) == 4)
check("9: nothing on a command line", secrets_on_command_lines == 0)
runs = os.path.join(folder, "runs")
newest = sorted(os.listdir(runs), key=lambda n: os.stat(os.path.join(runs, n)).st_mtime)[-1]
found = []
for root, _, files in os.walk(os.path.join(runs, newest)):
    for name in files:
        with open(os.path.join(root, name), "rb") as f:
            if secret in f.read():
                found.append(name)
check("9: the secret is in no file of the run", not found, found)
with open(os.path.join(runs, newest, "job.ini"), "rb") as f:
    check("9: job.ini has the reference", b"HF_TOKEN = ${HF_TOKEN}" in f.read().replace(b"  ", b" ").replace(b"  ", b" "))
check("9: the folder is private", os.stat(os.path.join(runs, newest)).st_mode & 0o777 == 0o700)
check("9: its files too", all(os.stat(os.path.join(root, n)).st_mode & 0o77 == 0 for root, _, fs in os.walk(os.path.join(runs, newest)) for n in fs))

# a literal value of 200,000 bytes is refused before anything is contacted
with open(os.path.join(folder, "big.ini"), "wb") as f:
    f.write(b"[env]\nBIG = " + b"y" * 200000 + b"\n")
done = subprocess.run([FTLAUNCH, "run", "big.ini", "-n", "1", "--", "true"], cwd=folder, capture_output=True, timeout=PATIENCE)
check("9: 200,000 bytes refused", done.returncode == 2 and b"200" in done.stderr and b"131" in done.stderr, done)

# what the interface promises to every rank
r = Run(["env"], n=3)
r.wait()
seen = {k: {} for k in range(3)}
for line in r.out.decode("latin1").splitlines():
    k, text = line.split("] ", 1)
    if "=" in text:
        seen[int(k[1:].split()[0])].update([text.split("=", 1)])
for k in range(3):
    e = seen[k]
    want = dict(RANK=str(k), LOCAL_RANK=str(k), WORLD_SIZE="3", LOCAL_WORLD_SIZE="3", NODE_RANK="0", GROUP_RANK="0", MASTER_ADDR="127.0.0.1", FT_RUN_ID=r.id,
                FT_RUN_DIR=os.path.realpath(r.dir), FT_RESTART="0", FT_NODE="localhost", FT_JOB=os.path.join(os.path.realpath(r.dir), "job.ini"), FT_TP_RANK="0",
                FT_TP_SIZE="1", FT_PP_RANK="0", FT_PP_SIZE="1", FT_DP_RANK=str(k), FT_DP_SIZE="3")
    check("9: rank %d has all of interface 4" % k, all(e.get(n) == v for n, v in want.items()), {n: e.get(n) for n in want if e.get(n) != want[n]})
    check("9: rank %d: port, token, progress" % k, e["MASTER_PORT"] == seen[0]["MASTER_PORT"] and len(e["FT_TOKEN"]) == 64 and e["FT_PROGRESS"].isdigit())
with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
    low, high = map(int, f.read().split())
port = int(seen[0]["MASTER_PORT"])
check("9: the port lies outside the kernel's range", not low <= port <= high, port)
finish()
