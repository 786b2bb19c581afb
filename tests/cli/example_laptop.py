#!/usr/bin/env python3
"""example_laptop.py BIN: examples/01_laptop through the commands, shortened to one pass over a part of its data (whole under FT_LAPTOP=whole).

Checks the figures that the reference framework gave (examples/01_laptop/data/README.md): loss of the base on valid.jsonl, token counts of one pass, and
that training brings the loss down, that the exported folder is complete and that the run folder holds what it promises."""
import json, os, subprocess, sys, tempfile

bin_, src = sys.argv[1], os.environ["FT_SOURCE"]
whole = os.environ.get("FT_LAPTOP") == "whole"
tmp = tempfile.mkdtemp(prefix="ft-laptop-")
model, data = f"{src}/examples/01_laptop/model", f"{src}/examples/01_laptop/data"
train = f"{data}/train.jsonl"
if not whole:
    train = f"{tmp}/train.jsonl"
    with open(train, "w") as f: f.writelines(open(f"{data}/train.jsonl").readlines()[:320])
sets = {"launch.run_dir": f"{tmp}/runs", "export.dir": f"{tmp}/model", "export.dtype": "fp32", "model.path": model, "data.train": train,
        "data.valid": f"{data}/valid.jsonl"}
if not whole: sets.update({"train.epochs": "1"})
cmd = [f"{bin_}/ftlaunch", "run", f"{src}/examples/01_laptop/job.ini"]
for k, v in sets.items(): cmd += ["--set", f"{k}={v}"]
r = subprocess.run(cmd, capture_output=True, text=True, timeout=280 if not whole else 900)
assert r.returncode == 0, f"exit {r.returncode}\n{r.stderr[-3000:]}"

run = f"{tmp}/runs/" + os.listdir(f"{tmp}/runs")[0]
for name in ("job.ini", "plan.json", "launch.log", "events.jsonl", "ranks/0000.log", "metrics.jsonl"):
    assert os.path.isfile(f"{run}/{name}"), f"{name} is missing in the run folder"
assert os.stat(run).st_mode & 0o777 == 0o700
lines = [json.loads(l) for l in open(f"{run}/metrics.jsonl")]
steps = [l for l in lines if "lr" in l]
evals = [l for l in lines if "eval" in l]
assert abs(evals[0]["loss"] - 4.998) <= 0.001, evals[0]
assert [s["step"] for s in steps] == list(range(1, len(steps) + 1))
if whole:
    one = [s for s in steps if s["step"] <= 117]
    assert len(steps) == 234, len(steps)
    assert sum(s["tokens"] for s in one) == 62752 and sum(s["trained_tokens"] for s in one) == 21931, one[-1]
    assert evals[-1]["loss"] <= 0.68, evals[-1]
else:
    assert len(steps) == 20, len(steps)
    assert evals[-1]["loss"] < 2.0, evals[-1]
ends = [json.loads(l) for l in open(f"{run}/events.jsonl")]
assert ends[-1]["ev"] == "run_end" and ends[-1]["status"] == 0, ends[-1]
for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
    assert os.path.isfile(f"{tmp}/model/{name}"), f"{name} is missing in the export"
for name in ("tokenizer.json", "special_tokens_map.json"):
    assert open(f"{tmp}/model/{name}", "rb").read() == open(f"{model}/{name}", "rb").read(), name
assert json.load(open(f"{tmp}/model/config.json"))["torch_dtype"] == "float32"
eos = json.load(open(f"{tmp}/model/generation_config.json"))["eos_token_id"]
assert eos[0] == 2, f"the trained terminator <|im_end|> (2) comes first: {eos}"
# the checkpoint exports what the run did: weights, template, terminator, every file
r = subprocess.run([f"{bin_}/ftlaunch", "model", "export", run, "-o", f"{tmp}/from_run", "--dtype", "fp32"], capture_output=True, text=True, timeout=280)
assert r.returncode == 0, f"exit {r.returncode}\n{r.stderr[-3000:]}"
assert sorted(os.listdir(f"{tmp}/from_run")) == sorted(os.listdir(f"{tmp}/model")), os.listdir(f"{tmp}/from_run")
for name in os.listdir(f"{tmp}/model"):
    assert open(f"{tmp}/from_run/{name}", "rb").read() == open(f"{tmp}/model/{name}", "rb").read(), name
# the export loads again: its loss is the loss that the run ended with
r = subprocess.run([f"{bin_}/ftlaunch", "run", f"{src}/examples/01_laptop/job.ini", "-n", "1"] + [x for k, v in {
    "launch.run_dir": f"{tmp}/again", "export.what": "none", "model.path": f"{tmp}/model", "data.train": train, "data.valid": f"{data}/valid.jsonl",
    "parallel.data": "1", "train.lr": "1e-9", "train.min_lr": "0", "train.epochs": "1"}.items() for x in ("--set", f"{k}={v}")],
    capture_output=True, text=True, timeout=280)
assert r.returncode == 0, f"exit {r.returncode}\n{r.stderr[-3000:]}"
again = [json.loads(l) for l in open(f"{tmp}/again/" + os.listdir(f"{tmp}/again")[0] + "/metrics.jsonl")]
first = next(l for l in again if "eval" in l)
assert abs(first["loss"] - evals[-1]["loss"]) <= 1e-5 * evals[-1]["loss"], (first, evals[-1])
print(f"validation {evals[0]['loss']:.4f} -> {evals[-1]['loss']:.4f} in {len(steps)} updates, {sum(s['step_ms'] for s in steps) / 1e3:.1f} s")
subprocess.run(["rm", "-rf", tmp])
