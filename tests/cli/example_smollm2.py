#!/usr/bin/env python3
"""example_smollm2.py BIN: examples/02_smollm2 through the commands, shortened to one pass (whole under FT_SMOLLM2_WHOLE). Needs the model folder of
tests/golden/smollm2/make-folder.py in FT_SMOLLM2 and about 6 GiB of memory; skips without.

Checks the token counts that the reference's tokenizer and template gave (tests/golden/smollm2/ref.json), the loss of the first update against one rank, that
memory is within the plan, and that the export is complete and loads again."""
import json, os, subprocess, sys, tempfile

bin_, src, model = sys.argv[1], os.environ["FT_SOURCE"], os.environ.get("FT_SMOLLM2")
if not model:
    print("skipped: FT_SMOLLM2 does not name the folder that tests/golden/smollm2/make-folder.py makes")
    sys.exit(77)
whole = "FT_SMOLLM2_WHOLE" in os.environ
tmp = tempfile.mkdtemp(prefix="ft-smollm2-")
data = f"{src}/examples/02_smollm2/data/chats.jsonl"

def run(name, *more):
    """The lines of metrics.jsonl and the folder of the run."""
    words = ["run", f"{src}/examples/02_smollm2/job.ini"]
    for x in (f"launch.run_dir={tmp}/{name}", f"data.train={data}", *more): words += ["--set", x]
    r = subprocess.run([f"{bin_}/ftlaunch"] + words, capture_output=True, text=True, timeout=900)
    assert r.returncode == 0, f"exit {r.returncode}\n{r.stderr[-3000:]}"
    folder = f"{tmp}/{name}/" + os.listdir(f"{tmp}/{name}")[0]
    return [json.loads(l) for l in open(f"{folder}/metrics.jsonl")], folder

short = [] if whole else ["train.epochs=1"]
lines, folder = run("two", f"model.path={model}", *short)
steps, evals = [l for l in lines if "lr" in l], [l for l in lines if "eval" in l]
assert len(steps) == (24 if whole else 4), steps
rows = json.load(open(f"{src}/tests/golden/smollm2/ref.json"))["rows"]
assert len(rows) == 20 and len(evals) >= 2
trained = sum(sum(x != -100 for x in r["labels"]) for r in rows)
one_pass = sum(s["trained_tokens"] for s in steps[:4]) + evals[0]["tokens"]
assert one_pass == trained, (one_pass, trained)
assert all(s["mem"] <= 1.1 * s["mem_plan"] for s in steps), [(s["mem"], s["mem_plan"]) for s in steps]
assert evals[-1]["loss"] < evals[0]["loss"], evals
for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
    assert os.path.isfile(f"{folder}/export/{name}"), f"{name} is missing in the export"
assert open(f"{folder}/export/tokenizer.json", "rb").read() == open(f"{model}/tokenizer.json", "rb").read()
if not whole:  # one rank makes the same first update; the exported folder is a model again
    one, _ = run("one", f"model.path={model}", "parallel.data=1", "nodes.localhost=slots=1", "export.what=none", *short)
    first = next(l for l in one if "lr" in l)
    assert abs(first["loss"] - steps[0]["loss"]) <= 1e-5 * first["loss"], (first, steps[0])
    again, _ = run("again", f"model.path={folder}/export", "export.what=none", "train.lr=1e-12", "train.min_lr=0", *short)
    first = next(l for l in again if "eval" in l)
    assert abs(first["loss"] - evals[-1]["loss"]) <= 1e-5 * first["loss"], (first, evals[-1])
print(f"validation {evals[0]['loss']:.4f} -> {evals[-1]['loss']:.4f} in {len(steps)} updates; last update {steps[-1]['tokens_per_s']:.0f} tokens/s, "
      f"peak {max(s['mem'] for s in steps) / 2**20:.0f} MiB a rank, planned {steps[-1]['mem_plan'] / 2**20:.0f}")
subprocess.run(["rm", "-rf", tmp])
