"""Ranks of fttrain that a test starts by itself, and what two runs must have in common to be the same to the bit."""
import glob
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess

SOURCE = os.environ.get("FT_SOURCE", ".")
# names that say who a process is, or that it belongs to a run
OTHERS = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_", "FT_JOB", "FT_RUN", "FT_TOKEN", "OMPI_COMM", "PMI", "SLURM_", "TORCHELASTIC_")
# what the clock, the memory of the machine or the name of the run say
NOT_BITS = ("time", "tokens_per_s", "step_ms", "data_ms", "comm_ms", "ckpt_ms", "mfu", "tflops", "mem", "mem_plan")


def clean_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
    env.update({k: str(v) for k, v in more.items()}, OMP_NUM_THREADS="1")
    return env


leases = []


def free_port():
    """A port of 127.0.0.1 below the kernel's own range, leased as ftlaunch leases its ports until this process ends: no other test or run takes it."""
    for port in random.SystemRandom().sample(range(20000, 29500), 2000):
        lease, probe = socket.socket(socket.AF_UNIX), socket.socket()
        try:
            lease.bind("\0ftlaunch/port/%d" % port)
            probe.bind(("127.0.0.1", port))
            leases.append(lease)
            return port
        except OSError:
            lease.close()
        finally:
            probe.close()
    raise RuntimeError("no free port")


def make_job(folder, tensor=1, data=2, updates=4, **train):
    """Golden llama in fp32 over made-up rows; saves in the middle and at the end."""
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    os.makedirs(folder)
    draw = random.Random(7)
    with open(folder + "/train.jsonl", "w") as f:
        for _ in range(4 * updates):
            n = draw.randint(5, 31)
            f.write(json.dumps({"input_ids": [draw.randrange(199) for _ in range(n)], "labels": [draw.randrange(199) for _ in range(n)]}) + "\n")
    keys = {"steps": updates, "global_batch": 4, "warmup": 1, "lr": "1e-3"}
    keys.update(train)
    with open(folder + "/job.ini", "w") as f:
        f.write("[parallel]\ntensor = %d\ndata = %d\n[model]\npath = %s/tests/golden/hf/llama\nprecision = fp32\n" % (tensor, data, SOURCE))
        f.write("[data]\ntrain = %s/train.jsonl\nformat = tokens\npacking = no\nseq_len = 32\n[train]\n" % folder)
        f.write("".join("%s = %s\n" % kv for kv in keys.items()))
        f.write("[checkpoint]\nevery = %d\nkeep = 9\n[export]\nwhat = none\n" % (updates // 2))
    return folder + "/job.ini"


def start_ranks(fttrain, job, folder, nodes, *options):
    """One process a rank, rank i on node nodes[i] by its environment only. The processes, rank by rank."""
    port, ranks = free_port(), []
    for rank, node in enumerate(nodes):
        env = clean_env(RANK=rank, WORLD_SIZE=len(nodes), NODE_RANK=node, LOCAL_RANK=nodes[:rank].count(node), LOCAL_WORLD_SIZE=nodes.count(node),
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=port, FT_RUN_DIR=folder)
        ranks.append(subprocess.Popen([fttrain, "-q", *options, job], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=env))
    return ranks


def finish(ranks, seconds=300):
    """[(status, words)] of each rank."""
    out = []
    for p in ranks:
        try:
            words, _ = p.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            p.kill()
            words = "killed after %d s: %s" % (seconds, p.communicate()[0])
        out.append((p.returncode, words))
    return out


def bits_of(folder):
    """Everything of a run that must not depend on where its ranks are: lines of metrics, tensors of all checkpoints, state hashes."""
    with open(folder + "/metrics.jsonl") as f:
        lines = [{k: v for k, v in json.loads(line).items() if k not in NOT_BITS} for line in f]
    out = {"metrics": lines}
    for path in sorted(glob.glob(folder + "/checkpoints/step_*/*")):
        name = path.split("/checkpoints/")[1]
        if name.endswith("manifest.json"):
            with open(path) as f:
                m = json.load(f)
            out[name] = {k: m[k] for k in ("step", "state_hash", "base_hash") if k in m}
        else:
            with open(path, "rb") as f:
                raw = f.read()
            head = 8 + int.from_bytes(raw[:8], "little")
            tensors = {k: v for k, v in json.loads(raw[8:head]).items() if k != "__metadata__"}
            out[name] = (tensors, hashlib.sha256(raw[head:]).hexdigest())
    return out
