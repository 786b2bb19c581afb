#!/usr/bin/env python3
"""messages.py BIN: what a user reads when they err: an unknown key, a missing model file, a wrong JSONL line, a killed rank, a taken port.
Each: the right status, one error of the form "what / where / fix", the named things in it, and nothing left behind."""
import json, os, shutil, signal, socket, subprocess, sys, tempfile, time

bin_, src = sys.argv[1], os.environ["FT_SOURCE"]
case = f"{src}/tests/golden/hf/llama"
tmp = tempfile.mkdtemp(prefix="ft-messages-")
failed = []


def job(name, **sets):
    ids = list(range(5, 25))
    rows = [json.dumps({"input_ids": ids, "labels": ids})] * 4
    open(f"{tmp}/rows.jsonl", "w").write("\n".join(rows) + "\n")
    if not os.path.isdir(f"{tmp}/model"):
        os.makedirs(f"{tmp}/model")
        for f in ("config.json", "model.safetensors"): shutil.copy(f"{case}/{f}", f"{tmp}/model")
    text = {"nodes": {"localhost": "slots=2"}, "launch": {"run_dir": f"{tmp}/runs", "output": "files"}, "parallel": {"data": "2"},
            "model": {"path": f"{tmp}/model", "precision": "fp32"},
            "data": {"train": f"{tmp}/rows.jsonl", "format": "tokens", "packing": "no", "dedupe": "no", "seq_len": "32"},
            "train": {"steps": "2", "global_batch": "4", "device": "cpu"}, "export": {"dir": f"{tmp}/out-{name}"}}
    for key, value in sets.items():
        section, field = key.split("__")
        text.setdefault(section, {})[field] = value
    path = f"{tmp}/{name}.ini"
    with open(path, "w") as f:
        for section, fields in text.items():
            f.write(f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in fields.items()))
    return path


def line_of(path, word): return next(i for i, l in enumerate(open(path), 1) if l.startswith(word))


def check(name, r, status, words, no_output=True):
    out = r.stderr + r.stdout
    bad = []
    if r.returncode != status: bad.append(f"status {r.returncode}, expected {status}")
    if ": error: " not in r.stderr: bad.append("no line with ': error: '")
    bad += [f"'{w}' is not said" for w in words if w not in out]
    if no_output and os.path.exists(f"{tmp}/out-{name}"): bad.append("an export folder was left")
    if bad: failed.append(f"{name}: " + "; ".join(bad) + "\n" + out[-2500:])


def run(path, *more, **kw): return subprocess.run([f"{bin_}/ftlaunch", "run", path, *more], capture_output=True, text=True, timeout=120, **kw)


p = job("key", train__lrr="1e-4")
check("key", run(p), 2, ["'lrr'", f"key.ini:{line_of(p, 'lrr')}", "lr"])
p = job("section", trian__lr="1e-4")
check("section", run(p), 2, ["trian", f"section.ini:{line_of(p, '[trian')}", "train"])

p = job("model", model__path=f"{tmp}/nowhere")
check("model", run(p), 2, [f"{tmp}/nowhere", "No such file"])
os.makedirs(f"{tmp}/half")
shutil.copy(f"{case}/config.json", f"{tmp}/half")
check("weights", run(job("weights", model__path=f"{tmp}/half")), 2, [f"{tmp}/half", "safetensors"])

p = job("jsonl", data__train=f"{tmp}/bad.jsonl")
open(f"{tmp}/bad.jsonl", "w").write('{"input_ids":[5,6,7],"labels":[5,6,7]}\n{"input_ids":[5,6,7],}\n{"input_ids":[5,6],"labels":[5]}\n{"input_ids":[5,9999],"labels":[5,9999]}\n')
r = run(p)
check("jsonl", r, 2, ["bad.jsonl:2:", "json", "bad.jsonl:3:", "ids-labels-length", "bad.jsonl:4:", "bad-id", "9999"])

p = job("under-a-file", export__dir=f"{tmp}/rows.jsonl/out")
check("under-a-file", run(p), 2, [f"cannot export to '{tmp}/rows.jsonl/out'", "no folder"])

# a run that diverges: whichever rank ends first, its last words are the cause
p = job("diverged", train__lr="1e30", train__clip="0", train__steps="20", train__warmup="1")
check("diverged", run(p), 3, ["is not finite at update", "micro-batch", "likely: a lower lr"])
for log in sorted(f"{r}/{f}" for r, _, fs in os.walk(f"{tmp}/runs") if "/diverged-" in r for f in fs if f in ("0000.log", "0001.log")):
    if "is not finite at update" not in open(log).read(): failed.append(f"diverged: {log} does not say why")

# the same over two stages of two chunks each: the tensor is the first of the whole model, whichever rank says it
p = job("diverged-stages", train__lr="1e30", train__clip="0", train__steps="20", train__warmup="1", parallel__data="1", parallel__pipeline="2", parallel__virtual_pipeline="2")
check("diverged-stages", run(p), 3, ["is not finite at update", "first in the gradient of model.embed_tokens.weight, data rank 0, micro-batch 1"])

# a rank of fttrain killed from outside while it trains: named, with its host and signal; status 137
p = job("killed", train__steps="100000")
pr = subprocess.Popen([f"{bin_}/ftlaunch", "run", p], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
pid, deadline = None, time.time() + 120
while pid is None and time.time() < deadline:
    time.sleep(0.05)
    for root, _, files in os.walk(f"{tmp}/runs"):
        if "killed-" in root and "metrics.jsonl" in files and os.path.getsize(f"{root}/metrics.jsonl") > 0:
            for l in open(f"{root}/events.jsonl"):
                e = json.loads(l) if l.endswith("\n") else {"ev": ""}
                if e["ev"] == "rank_started" and e["rank"] == 1: pid = e["pid"]
assert pid, "rank 1 did not start to train within 120 s"
os.kill(pid, signal.SIGKILL)
out, err = pr.communicate(timeout=120)
check("killed", subprocess.CompletedProcess([], pr.returncode, out, err), 137, ["rank 1 on localhost", "SIGKILL", str(pid)])

# the port of the meeting is taken: rank, address, port and remedy are named
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
port = s.getsockname()[1]
check("port", run(job("port", cluster__master_port=str(port))), 2, [str(port), "master_port"])

for _ in range(600):  # a process that was killed may still be on its way out
    left = subprocess.run(["pgrep", "-f", tmp], capture_output=True, text=True).stdout.split()
    if not left: break
    time.sleep(0.1)
if left: failed.append(f"processes left: {left}")
print("\n".join(failed) if failed else "8 faults, each said as it should be")
if not failed: shutil.rmtree(tmp)
sys.exit(bool(failed))
