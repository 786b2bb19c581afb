#!/usr/bin/env python3
"""Our update beside the same one in PyTorch with transformers: SmolLM2-135M's sizes, fp32, forward, backward, clip, fused AdamW.

    torch_ratio.py BENCH_NN [dense|chats] [threads] [pairs]      needs torch, transformers, numpy in this python

Both start from the same weights and ids (bench_nn.c makes them from mix64), so the first losses must agree to 1e-5; then pairs of one
update each, alternating. Printed: median seconds and median processor seconds of both, and their ratios. chats: theirs is one padded batch of 8."""
import re, statistics, subprocess, sys, time
import numpy as np, torch
from transformers import LlamaConfig, LlamaForCausalLM

bench, mode = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "dense"
threads, pairs = (int(x) for x in (sys.argv[3:5] + ["1", "5"][len(sys.argv[3:5]):]))
torch.set_num_threads(threads)

def mix64(z):
    z = z ^ (z >> np.uint64(30)); z = z * np.uint64(0xBF58476D1CE4E5B9)
    z = z ^ (z >> np.uint64(27)); z = z * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))

def mixed(first, n):
    return mix64(np.arange(first, first + n, dtype=np.uint64))

model = LlamaForCausalLM(LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                                     max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True, vocab_size=49152))
at = 0
with torch.no_grad():
    for name, p in model.named_parameters():
        n = p.numel()
        if "norm" in name: p.fill_(1.0)
        else: p.copy_(torch.from_numpy((mixed(at, n).view(np.int64).astype(np.float64) * 2.0**-63 * 0.02).astype(np.float32)).view(p.shape))
        at += (n + 63) // 64 * 64
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

lengths = [int(50 + mixed(99 + i, 1)[0] % np.uint64(451)) for i in range(8)] if mode == "chats" else [512]
T = max(lengths)
ids = torch.zeros(len(lengths), T, dtype=torch.long); labels = torch.full_like(ids, -100); mask = torch.zeros_like(ids)
for i, n in enumerate(lengths):
    x = torch.from_numpy((mixed(i * 1000, n) % np.uint64(49152)).astype(np.int64))
    first = n - n // 3 + 1 if mode == "chats" else 1
    ids[i, :n] = x; mask[i, :n] = 1; labels[i, first:n] = x[first:]

def theirs():
    t, c = time.perf_counter(), time.process_time()
    loss = model(input_ids=ids, labels=labels, attention_mask=mask if mode == "chats" else None).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); optimizer.zero_grad()
    return time.perf_counter() - t, time.process_time() - c, loss.item()

def ours():
    out = subprocess.run([bench, mode, str(threads), "1"], capture_output=True, text=True, check=True).stdout
    wall, cpu = re.search(r": ([0-9.]+) s an update .*processor time ([0-9.]+)", out).groups()
    return float(wall), float(cpu), float(re.search(r"loss ([0-9.]+)", out).group(1))

_, _, loss = theirs()
mine = ours()[2]
print(f"first loss: ours {mine:.6f}, PyTorch {loss:.6f}")
if abs(mine - loss) > 1e-5 * loss: sys.exit("the losses differ: not the same work")
a, b = [], []
for _ in range(pairs):
    b.append(theirs()); a.append(ours())
for i, what in ((0, "seconds"), (1, "processor seconds")):
    x, y = statistics.median(v[i] for v in a), statistics.median(v[i] for v in b)
    print(f"{mode}, {threads} threads, {what} an update: ours {x:.3f}, PyTorch {torch.__version__} {y:.3f}: {y / x:.2f} x")
