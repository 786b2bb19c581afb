#!/usr/bin/env python3
"""The crown: the same updates at many layouts (tensor, pipeline, data), micro-batches, recompute modes and packings are the same updates.

    grid.py BIN [--full] [--engine tcp|mpi] [--only TEXT] [--keep]

Every run trains ten updates of a folder of tests/golden/hf. Losses, norms and weights are compared with those of one rank (1e-5 relative;
bf16: losses, 1e-2), those of one rank with the reference's numbers; what must be the same bits is compared to the bit (runtime maths,
section 18). Without --full: a representative dozen and a few more, a second each. --full: every family and variant at every layout that
it allows, with micro-batches and recompute modes in turn, minutes (tests/campaign/layouts).

A layout that `fttrain plan` refuses is skipped with its reason; in the dozen that is a fault. The engine is taken from the command line:
tcp through ftlaunch, mpi through mpirun. Exit 77: nothing could be run."""
import array
import functools
import glob
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
GOLDEN = os.path.join(os.environ.get("FT_SOURCE", "."), "tests/golden")
FAMILIES = ("gpt2", "llama", "llama31", "smollm2", "mistral", "qwen2", "qwen3")
LAYOUTS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (1, 4, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2))
VARIANTS = tuple(sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(GOLDEN + "/variants/*/ref.json")))
# Of the variants, whose references are a loss and its gradient only; eps keeps gradients that are nothing but rounding from moving weights.
OPTIMIZER = {"lr": 2e-3, "min_lr": 1e-4, "schedule": "cosine", "warmup": 1, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-4, "clip": 1}
UPDATES = 10
TOL = 1e-5
# Their gradient is almost nothing (softmax does not see a shift) and Adam divides by its size: see tests/golden/hf/README.md
NOISY = ("attn.c_attn.bias", "self_attn.k_proj.bias")
failed, count, skipped = [], 0, []
work = tempfile.mkdtemp(prefix="ft-grid-")


def expect(name, ok, detail=""):
    global count
    count += 1
    if not ok:
        failed.append(name)
        print("FAILED %s: %s" % (name, detail), flush=True)
    return ok


def tensors(path):
    """{name: (shape, array)} of a safetensors file: F32, BF16, I32."""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, v in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = v["data_offsets"]
        data = raw[8 + n + a:8 + n + b]
        if v["dtype"] == "BF16":
            data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        out[name] = (v["shape"], array.array("i" if v["dtype"] == "I32" else "f", data))
    return out


def golden(family, name=""):
    return "%s/%s/%s/%s" % (GOLDEN, "variants" if family in VARIANTS else "hf", family, name)


def read_ref(family):
    with open(golden(family, "ref.json")) as f:
        return json.load(f)


def write_rows(family, path, updates, longest=0):
    """One record a row, up to its last trained token; the rows of an update several times, until four ranks can share them. longest: the
    first tokens of each only, one to so many, all of them trained."""
    io = tensors(golden(family, "io.safetensors"))
    (batches, rows, T), ids = io["ids"]
    updates = min(updates, batches)
    labels = io["labels"][1]
    times = 1 if rows % 4 == 0 else 4
    with open(path, "w") as f:
        for i, at in enumerate((k * rows + r) * T for k in range(updates) for _ in range(times) for r in range(rows)):
            lab = labels[at:at + T].tolist()
            n = max(j for j in range(T) if lab[j] != -100) + 1
            if longest:
                n = i % longest + 1
                lab = ids[at:at + n].tolist()
            f.write(json.dumps({"input_ids": ids[at:at + n].tolist(), "labels": lab[:n]}) + "\n")
    return rows * times, T


def write_model(family, to, dropout):
    shutil.copytree(golden(family), to, ignore=shutil.ignore_patterns("lora*", "io.*", "grads.*", "final.*", "ref.json"))
    with open(to + "/config.json") as f:
        config = json.load(f)
    if dropout:
        names = ("embd_pdrop", "resid_pdrop", "attn_pdrop") if config["model_type"] == "gpt2" else ("attention_dropout",)
        config.update({n: dropout for n in names})
        os.chmod(to, 0o755)
        os.remove(to + "/config.json")
        with open(to + "/config.json", "w") as f:
            json.dump(config, f)


def weights_of(folder):
    out = {}
    for path in sorted(glob.glob(folder + "/model*.safetensors")):
        out.update(tensors(path))
    return out


class Run:
    """What a run left behind. why: it did not end well."""
    why, losses, norms, weights, evals, saved, again = None, (), (), None, (), (), None


def job_text(family, layout, at, sets, rows, T):
    o = read_ref(family).get("optimizer", OPTIMIZER)
    t, p, d = layout
    keys = {"cluster": {"name": "grid", "transport": "local"}, "nodes": {"localhost": "slots=%d" % (t * p * d)},
            "launch": {"run_dir": at + "/runs", "output": "quiet"}, "parallel": {"tensor": t, "pipeline": p, "data": d},
            "model": {"path": at + "/model", "precision": "fp32"},
            "data": {"train": at + "/train.jsonl", "format": "tokens", "packing": "no", "shuffle": "no", "dedupe": "no", "seq_len": T},
            "train": {"steps": UPDATES, "global_batch": rows, "micro_batch": 1, "warmup": o["warmup"]}, "checkpoint": {"every": 0},
            "export": {"dir": at + "/out", "dtype": "fp32"}}
    keys["train"].update({k: o[k] for k in ("lr", "min_lr", "schedule", "weight_decay", "beta1", "beta2", "eps", "clip")})
    for k, v in sets.items():
        section, key = k.split(".")
        keys.setdefault(section, {})[key] = v
    return "".join("[%s]\n%s" % (s, "".join("%s = %s\n" % kv for kv in m.items())) for s, m in keys.items())


def start(at, layout, engine):
    n = layout[0] * layout[1] * layout[2]
    if engine == "tcp":
        argv, cwd = [BIN + "/ftlaunch", "run", at + "/job.ini"], at
    else:
        argv, cwd = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(n), BIN + "/fttrain", "-q", at + "/job.ini"], at
    env = {k: v for k, v in os.environ.items() if k not in ("FT_JOB", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd=cwd, env=env)


@functools.lru_cache(maxsize=None)
def train(family, layout, frozen=(), dropout=0.0, updates_at_once=0, longest=0, engine="tcp", again=0, resume=None):
    """frozen: sorted (key, value) pairs; AT in a value is the run's folder. updates_at_once: rows of so many updates make one (a whole
    epoch). resume: folder of a checkpoint."""
    out, at = Run(), "%s/%d" % (work, len(os.listdir(work)))
    os.mkdir(at)
    rows, T = write_rows(family, at + "/train.jsonl", updates_at_once or UPDATES, longest)
    write_model(family, at + "/model", dropout)
    sets = {k: v.replace("AT", at) for k, v in frozen}
    if resume:
        sets["checkpoint.resume"] = resume
    if engine != "tcp":
        sets["train.collectives"] = engine
    with open(at + "/job.ini", "w") as f:
        f.write(job_text(family, layout, at, sets, rows, T))
    r = start(at, layout, engine)
    if r.returncode:
        out.why = "exit %d: %s" % (r.returncode, (r.stderr or r.stdout).strip()[-600:])
        return out
    run = os.path.dirname((glob.glob(at + "/runs/*/metrics.jsonl") + glob.glob(at + "/metrics.jsonl"))[0])
    with open(run + "/metrics.jsonl") as f:
        lines = [json.loads(line) for line in f]
    out.losses = [m["loss"] for m in lines if "lr" in m]
    out.norms = [m["grad_norm"] for m in lines if "lr" in m]
    out.evals = [m["loss"] for m in lines if "eval" in m]
    out.saved = sorted(glob.glob(run + "/checkpoints/step_*"))
    out.weights = weights_of(at + "/out")
    if "export.dtype" in sets: # the same from the checkpoint
        r = subprocess.run([BIN + "/fttrain", "model", "export", run, "-o", at + "/again", "--dtype", sets["export.dtype"]], capture_output=True, text=True, timeout=200)
        out.again = weights_of(at + "/again")
    if "--keep" not in sys.argv and len(out.saved) < 2:
        shutil.rmtree(at)
        os.mkdir(at)
    return out


def off(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-30)


def far(a, b):
    """||a-b|| / ||b|| of two tensors."""
    return math.sqrt(math.fsum((x - y) * (x - y) for x, y in zip(a, b))) / max(math.sqrt(math.fsum(y * y for y in b)), 1e-30)


def same(name, a, b, tol=TOL, weights=True):
    """Losses, norms and weights of a are those of b."""
    if not expect(name + ": ran", not a.why and not b.why, a.why or b.why):
        return
    expect(name + ": updates", len(a.losses) == len(b.losses) >= 2 and len(a.evals) == len(b.evals), (a.losses, b.losses))
    for what, x, y in (("loss", a.losses, b.losses), ("norm", a.norms, b.norms), ("evaluation", a.evals, b.evals)):
        worst = max([off(p, q) for p, q in zip(x, y)], default=0)
        if what != "norm" or weights:
            expect("%s: %s" % (name, what), worst <= tol, "%.2e: %s, not %s" % (worst, x, y))
    if not weights:
        return
    expect(name + ": tensors", list(a.weights) == list(b.weights) and all(a.weights[k][0] == b.weights[k][0] for k in a.weights))
    bad = [(far(a.weights[k][1], b.weights[k][1]), k) for k in b.weights]
    bad = [x for x in bad if x[0] > (10 * tol if x[1].endswith(NOISY) else tol)]
    expect(name + ": weights", not bad, sorted(bad, reverse=True)[:4])


def same_bits(name, a, b):
    if expect(name + ": ran", not a.why and not b.why, a.why or b.why):
        expect(name + ": the same bits", (a.losses, a.norms, a.weights) == (b.losses, b.norms, b.weights), (a.losses, b.losses))


@functools.lru_cache(maxsize=None)
def not_allowed(family, layout, chunks="1"):
    """Why this build refuses the layout for this model; None: it takes it."""
    t, p, d = layout
    argv = [BIN + "/fttrain", "plan", "--json", "--world", str(t * p * d), "--set", "model.path=" + golden(family), "--set", "train.global_batch=4",
            "--set", "data.train=x", "--set", "export.what=none", "--set", "parallel.tensor=%d" % t, "--set", "parallel.pipeline=%d" % p,
            "--set", "parallel.virtual_pipeline=" + chunks]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=200)
    answer = json.loads(r.stdout)
    return None if answer["legal"] else answer["why"]


def sets(**keys):
    return tuple(sorted((k.replace("__", "."), v) for k, v in keys.items()))


def against_one(family, layout, keys=(), tol=TOL, weights=True, engine="tcp", **data):
    """A run at a layout, against the same data on one rank with micro-batches of one row and nothing recomputed."""
    name = "%s %s%s" % (family, "x".join(map(str, layout)), "".join(" %s=%s" % (k.split(".")[1], v) for k, v in keys) +
                        "".join(" %s=%s" % kv for kv in data.items()))
    if only and only not in name:
        return
    why = not_allowed(family, layout, dict(keys).get("parallel.virtual_pipeline", "1"))
    if why:
        skipped.append("%s %s: %s" % (family, "x".join(map(str, layout)), why))
        return
    common = tuple(kv for kv in keys if kv[0] in ("data.valid", "eval.every", "train.global_batch", "data.seq_len", "model.precision"))
    one = train(family, (1, 1, 1), common, **data)
    same(name, train(family, layout, keys, engine=engine, **data), one, tol, weights)


def reference(family):
    """One rank against the numbers of another framework."""
    if only and only not in family:
        return
    one = train(family, (1, 1, 1))
    ref = read_ref(family)
    updates = ref.get("updates", [ref])[:UPDATES]
    if expect(family + " one rank: ran", not one.why, one.why):
        for what, got in (("loss", one.losses), ("grad_norm", one.norms)):
            worst = max(off(x, u[what]) for x, u in zip(got, updates))
            expect("%s one rank: %s as the reference's" % (family, what), len(updates) in (1, UPDATES) and worst <= TOL, got)


def dozen(engine):
    """Each line is there for something that no other line has."""
    for family in FAMILIES:
        reference(family)
    against_one("llama", (2, 1, 1), sets(train__micro_batch="2"), engine=engine)                                # column and row cuts
    against_one("llama", (1, 1, 2), sets(train__micro_batch="2"), engine=engine)
    against_one("llama", (2, 1, 2), sets(train__micro_batch="2", model__recompute="full"), engine=engine)       # collectives made again
    against_one("gpt2", (4, 1, 1), sets(model__recompute="selective"), engine=engine, dropout=0.1)              # fused parts, biases, masks by logical index
    against_one("llama31", (4, 1, 1), engine=engine)                                                            # 2 kv heads on 4 ranks, tied
    against_one("smollm2", (2, 1, 2), engine=engine)
    against_one("mistral", (4, 1, 1), sets(train__micro_batch="4"), engine=engine, dropout=0.1)                 # the same, q wider than h
    against_one("qwen2", (2, 1, 1), engine=engine)                                                              # q k v biases
    against_one("qwen3", (4, 1, 1), engine=engine)                                                              # QK-norm, replicas of its k
    against_one("qwen3", (2, 1, 2), sets(model__precision="bf16"), tol=1e-2, weights=False, engine=engine)
    packed = sets(train__global_batch="64", data__packing="yes", data__seq_len="64")
    against_one("llama", (2, 1, 2), packed, engine=engine, updates_at_once=UPDATES)                                   # packs, whole epochs
    reference("llama-bias")
    against_one("llama-bias", (8, 1, 1), engine=engine)                                                         # one kv head on eight ranks, biases everywhere
    reference("mistral-window")
    against_one("mistral-window", (4, 1, 1), sets(train__micro_batch="2", model__recompute="full"), engine=engine)
    against_one("gpt2", (2, 2, 1), sets(train__micro_batch="2"), engine=engine)
    against_one("qwen3", (2, 2, 2), engine=engine)
    against_one("llama31", (1, 4, 1), sets(model__recompute="full"), engine=engine)
    against_one("gpt2", (2, 2, 1), sets(parallel__virtual_pipeline="2", model__recompute="selective"), engine=engine, dropout=0.1) # chunks, masks by logical layer
    against_one("qwen3", (1, 2, 2), sets(parallel__virtual_pipeline="2", model__recompute="full"), engine=engine) # chunks, m = p
    for family, layout, keys, dropout in (("llama", (2, 1, 1), {"train__micro_batch": "2"}, 0.0), ("gpt2", (4, 1, 1), {"model__recompute": "selective"}, 0.1),
                                          ("gpt2", (2, 2, 1), {"parallel__virtual_pipeline": "2"}, 0.1), ("qwen2", (2, 1, 2), {"model__recompute": "full"}, 0.0),
                                          ("qwen3", (2, 2, 2), {}, 0.0)):
        sequence(family, layout, keys, engine, dropout)
    split = sets(parallel__sequence="yes")
    against_one("llama", (4, 2, 1), split, engine=engine, longest=7)                         # fewer tokens than ranks: some have none, and send none
    if not only or only in "gpt2 2x1x1 packed sequence": # segments cut between ranks, masks by place in the pack
        with_it, without = [train("gpt2", (2, 1, 1), packed + more, 0.1, updates_at_once=UPDATES, engine=engine) for more in (split, ())]
        same("gpt2 2x1x1 packed, sequence on and off", with_it, without)


def sequence(family, layout, keys, engine, dropout=0.0):
    """Tokens split over the tensor group: the updates of one rank, and the first loss and the evaluation before it of the same layout
    without it, to the bit (sums are in the same order; only those of the norms' gradients are not)."""
    evaluated = dict(keys, parallel__sequence="yes", data__valid="AT/train.jsonl")
    against_one(family, layout, sets(**evaluated), engine=engine, dropout=dropout)
    name = "%s %s sequence" % (family, "x".join(map(str, layout)))
    if (only and only not in name) or not_allowed(family, layout, keys.get("parallel__virtual_pipeline", "1")):
        return
    split = train(family, layout, sets(**evaluated), engine=engine, dropout=dropout)
    plain = train(family, layout, sets(**dict(evaluated, parallel__sequence="no")), engine=engine, dropout=dropout)
    same(name + " on and off", split, plain)
    if not (split.why or plain.why):
        expect(name + " on and off: the first loss", (split.losses[0], split.evals[0]) == (plain.losses[0], plain.evals[0]),
               (split.losses[0], plain.losses[0], split.evals[0], plain.evals[0]))


def bits(engine):
    """Same layout, same micro-batch: the same bits, a second time, with anything recomputed, with evaluations between, stopped and
    resumed. RT-15: replicas stay what they are on all these paths."""
    cases = (("qwen3", (4, 1, 1), "1", "yes"), ("gpt2", (2, 2, 1), "1", "no"), ("llama31", (1, 2, 1), "2", "no"), ("llama31", (2, 1, 2), "1", "no"),
             ("smollm2", (1, 2, 2), "1", "no"), ("qwen3", (2, 2, 2), "1", "no"), ("smollm2", (2, 2, 1), "2", "yes"), ("gpt2", (4, 1, 1), "1", "yes"))
    for family, layout, chunks, split in cases if "--full" in sys.argv else cases[:3]:
        name = "%s %s%s%s" % (family, "x".join(map(str, layout)), " in chunks" if chunks != "1" else "", " sequence" if split == "yes" else "")
        if (only and only not in name) or not_allowed(family, layout):
            continue
        common = dict(train__micro_batch="2", checkpoint__every=str(UPDATES // 2), checkpoint__keep="0", parallel__virtual_pipeline=chunks, parallel__sequence=split)
        first = train(family, layout, sets(**common), 0.1, engine=engine)
        same_bits(name + " a second time", train(family, layout, sets(**common), 0.1, engine=engine, again=1), first)
        for mode in ("selective", "full"):
            same_bits("%s recompute %s" % (name, mode), train(family, layout, sets(model__recompute=mode, **common), 0.1, engine=engine), first)
        # the norm is a sum in the order of the ranks: another order, another last bit
        same(name + " in another order", train(family, layout, sets(parallel__order="dp-pp-tp", **common), 0.1, engine=engine), first)
        evals = sets(data__valid="AT/train.jsonl", eval__every="1", eval__restore_best="no", **common)
        evaluated = train(family, layout, evals, 0.1, engine=engine)
        expect(name + ": evaluations", len(evaluated.evals) == UPDATES + 1, evaluated.evals)
        same_bits(name + " evaluated", evaluated, first)
        one = train(family, (1, 1, 1), tuple(kv for kv in evals if kv[0] not in ("parallel.virtual_pipeline", "parallel.sequence")), 0.1)
        worst = max([off(a, b) for a, b in zip(one.evals, evaluated.evals)], default=1)
        expect(name + ": evaluations as on one rank", worst <= TOL, (one.evals, evaluated.evals))
        if expect(name + ": two checkpoints", len(first.saved) == 2, first.saved):
            again = train(family, layout, sets(**common), 0.1, engine=engine, resume=first.saved[0])
            again.losses, again.norms = first.losses[:UPDATES // 2] + again.losses, first.norms[:UPDATES // 2] + again.norms
            same_bits(name + " resumed", again, first)


def moved(engine):
    """RT-03, RT-18: a run that is saved at one layout goes on at another, and another, as if nothing had happened; what a layout loads
    it exports to the bit (a run at its last update has nothing to train and exports)."""
    for family, precision, chain in (("gpt2", "fp32", ((4, 1, 2), (1, 2, 2, 2), (2, 1, 1, 1, "yes"))), ("qwen3", "bf16", ((2, 1, 2, 1, "yes"), (4, 1, 1), (1, 1, 1))),
                                     ("llama31", "fp32", ((1, 4, 1), (2, 2, 1), (2, 1, 2)))): # behind data: chunks, sequence
        name = "%s %s moved %s" % (family, precision, " > ".join("x".join(map(str, layout)) for layout in chain))
        if only and only not in name:
            continue
        def part(layout, **more):
            chunks, split = [str(x) for x in (layout + (1, "no")[len(layout) - 3:])[3:]]
            return train(family, layout[:3], sets(model__precision=precision, checkpoint__every="4", checkpoint__keep="0", export__dtype="fp32",
                                                  parallel__virtual_pipeline=chunks, parallel__sequence=split), engine=engine, **more)
        why = [w for w in [not_allowed(family, layout[:3], str((layout + (1,))[3])) for layout in chain] if w]
        if why:
            skipped.append("%s: %s" % (name, why[0]))
            continue
        first = part(chain[0])
        second = part(chain[1], resume=first.saved[0] if first.saved else "none")
        third = part(chain[2], resume=second.saved[0] if second.saved else "none")
        if not expect(name + ": ran", not (first.why or second.why or third.why), first.why or second.why or third.why):
            continue
        expect(name + ": updates", [len(r.losses) for r in (first, second, third)] == [UPDATES, UPDATES - 4, UPDATES - 8])
        third.losses, third.norms = first.losses[:4] + second.losses[:4] + third.losses, first.norms[:4] + second.norms[:4] + third.norms
        same(name, third, part((1, 1, 1)), TOL if precision == "fp32" else 1e-2, precision == "fp32")
        for layout in chain[1:]:
            loaded = part(layout, resume=first.saved[-1])
            if expect("%s: loads at %s" % (name, layout), not loaded.why, loaded.why):
                expect("%s: exports at %s what was saved" % (name, layout), not loaded.losses and loaded.weights == first.weights == first.again)


def untouched(engine):
    """RT-06: what is cut among ranks and written again is the file, bit for bit (a rate of 0 changes nothing)."""
    cases = ((2, 1, 1), (2, 2, 1), (1, 4, 1), (4, 1, 1), (2, 1, 2), (1, 2, 2))
    for i, family in enumerate(FAMILIES):
        for layout in cases if "--full" in sys.argv else cases[i % 2:i % 2 + 1]:
            name = "%s %s untouched" % (family, "x".join(map(str, layout)))
            if (only and only not in name) or not_allowed(family, layout):
                continue
            run = train(family, layout, sets(train__lr="0", train__min_lr="0", train__steps="1", export__dtype="base"), engine=engine)
            base = weights_of(golden(family))
            if expect(name + ": ran", not run.why, run.why):
                odd = [k for k in run.weights if run.weights[k] != base[k]]
                expect(name, not odd and len(run.weights) > 20, odd[:4])
                expect(name + ", from the checkpoint", run.again == run.weights)


def full(engine):
    for family in FAMILIES + VARIANTS:
        reference(family)
        for i, layout in enumerate(LAYOUTS + ((3, 1, 1), (6, 1, 1), (8, 1, 1), (2, 1, 4), (2, 4, 1), (4, 2, 1), (1, 2, 4))):
            for micro in [m for m in (1, 2, 4) if m * layout[2] <= 4]:
                mode = ("off", "selective", "full")[(i + micro) % 3]
                against_one(family, layout, sets(train__micro_batch=str(micro), model__recompute=mode), engine=engine)
            if layout[1] > 1:
                mode = ("off", "selective", "full")[i % 3]
                against_one(family, layout, sets(parallel__virtual_pipeline="2", model__recompute=mode), engine=engine, dropout=0.1)
            against_one(family, layout, sets(model__recompute="full"), engine=engine, dropout=0.1)
            if layout[0] > 1:
                keys = {"model__recompute": ("off", "selective", "full")[(i + 1) % 3], "parallel__virtual_pipeline": "2" if layout[1] > 1 and i % 2 else "1"}
                sequence(family, layout, keys, engine, 0.1 if i % 3 else 0.0)
                against_one(family, layout, sets(model__precision="bf16", parallel__sequence="yes"), tol=1e-2, weights=False, engine=engine)
            against_one(family, layout, sets(model__precision="bf16"), tol=1e-2, weights=False, engine=engine)
            if family in ("llama", "gpt2"):
                for split in ("no", "yes")[:2 if layout[0] > 1 else 1]:
                    packed = sets(train__global_batch="64", data__packing="yes", data__seq_len="64", parallel__sequence=split)
                    against_one(family, layout, packed, engine=engine, updates_at_once=UPDATES)


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


only = option("--only", None)
try:
    chosen = option("--engine", "tcp")
    (full if "--full" in sys.argv else dozen)(chosen)
    bits(chosen)
    untouched(chosen)
    moved(chosen)
finally:
    if "--keep" not in sys.argv:
        shutil.rmtree(work, ignore_errors=True)
for s in sorted(set(skipped)):
    print("skipped " + s)
    expect(s, "--full" in sys.argv, "a layout of the dozen is one that the model allows")
print("%d checks, %d failed, %d runs skipped" % (count, len(failed), len(skipped)))
sys.exit(1 if failed else 77 if not count else 0)
