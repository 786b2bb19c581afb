#!/usr/bin/env python3
"""prepare_kills.py BIN: `data prepare` killed with SIGKILL on its way, again and again: no half cache is ever taken, and the next one makes the same bytes as one that nobody
disturbed, with nothing beside them."""
import hashlib, json, os, random, shutil, signal, subprocess, sys, tempfile, time

bin_, src = sys.argv[1], os.environ["FT_SOURCE"]
tmp = tempfile.mkdtemp(prefix="ft-prepare-")
rng = random.Random(20261201)
with open(f"{tmp}/train.jsonl", "w") as f:
    for i in range(6000):
        words = " ".join(rng.choice(["horse", "runs", "quick", "over", "a", "the", "river", "stone"]) for _ in range(20))
        f.write(json.dumps({"messages": [{"role": "user", "content": f"{i} {words}?"}, {"role": "assistant", "content": words}]}) + "\n")

def argv(cache):
    with open(f"{tmp}/job.ini", "w") as f:
        f.write(f"[model]\npath = {src}/examples/01_laptop/model\n[data]\ntrain = {tmp}/train.jsonl\nseq_len = 256\ncache = {cache}\n")
    return [f"{bin_}/ftlaunch", "data", "prepare", f"{tmp}/job.ini"]

def tree(cache):
    out = {}
    for folder, _, files in os.walk(cache):
        for name in files:
            path = os.path.join(folder, name)
            out[os.path.relpath(path, cache)] = hashlib.sha256(open(path, "rb").read()).hexdigest()
    return out

start = time.monotonic()
r = subprocess.run(argv(f"{tmp}/calm"), capture_output=True, text=True, timeout=300)
assert r.returncode == 0, r.stderr
whole, want = time.monotonic() - start, tree(f"{tmp}/calm")
assert want, "nothing was prepared"
killed = 0
for i in range(12):
    p = subprocess.Popen(argv(f"{tmp}/wild"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(whole * (i + 0.5) / 24)
    alive = p.poll() is None
    if alive: os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    killed += alive
    done = [n for n in tree(f"{tmp}/wild") if n in want]
    if alive and len(done) == len(want): assert all(tree(f"{tmp}/wild")[n] == want[n] for n in want)  # killed behind the rename
    else: assert not alive or not done, (i, done)
r = subprocess.run(argv(f"{tmp}/wild"), capture_output=True, text=True, timeout=300)
assert r.returncode == 0, r.stderr
assert tree(f"{tmp}/wild") == want, (sorted(tree(f"{tmp}/wild")), sorted(want))
print(f"killed {killed} of 12 on their way; the next one made the same {len(want)} files")
assert killed >= 1, "none was killed on its way"
shutil.rmtree(tmp)
