#!/usr/bin/env python3
"""The engine `mpi` under a real mpirun: the exact cases of tests/unit/coll, what goes wrong, a training against `tcp`.

    mpi.py BIN exact|faults|train

Skipped (77) when this build has no engine mpi or no Open MPI's mpirun is there."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(sys.argv[1])
TESTS = os.path.join(os.path.dirname(BIN), "tests")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../parallel"))
import ranks  # noqa: E402

failed, count = [], 0
OPTIONS = ["--oversubscribe", "--bind-to", "none"]
# mpirun does not end the others when one has: what they do by themselves is seen, however slow the machine is
ALONE = "--enable-recovery"
MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")


def expect(name, ok, detail=""):
    global count
    count += 1
    if not ok:
        failed.append(name)
        print("FAILED %s: %s" % (name, detail), flush=True)
    return ok


def env(**more):
    """More ranks than cores, as root, without the single-copy of memory that containers may forbid; the library's own leaks are not ours."""
    return ranks.clean_env(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, OMPI_MCA_mpi_yield_when_idle=1, OMPI_MCA_pml="ob1",
                           OMPI_MCA_btl="self,vader", OMPI_MCA_btl_vader_single_copy_mechanism="none",
                           ASAN_OPTIONS="detect_leaks=0", TMPDIR="/tmp", **more)


def mpirun(n, argv, cwd=None, seconds=300, **more):
    """(status, words of all ranks, one rank after the other, and of mpirun). argv: of one program, or of several as mpirun takes them."""
    at = tempfile.mkdtemp(prefix="ft-mpi-words-")
    command = [MPIRUN, *OPTIONS, "--output-filename", at + ":nocopy", "-n", str(n), *argv]
    e = env()
    e.update(more)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd, env=e, start_new_session=True) as p:
        try:
            words = p.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            words = "no end after %d s: %s" % (seconds, p.communicate()[0])
            p.returncode = -1
    return p.returncode, words_in(at) + words


def words_in(folder):
    """What ranks wrote to files of mpirun, which tears lines that two of them write at once. The folder is removed."""
    out = ""
    for there, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            with open(os.path.join(there, name), errors="replace") as f:
                out += f.read()
    shutil.rmtree(folder)
    return out


def exact():
    for n in (2, 3, 4):
        status, words = mpirun(n, [TESTS + "/test_coll_exact", "mpi"])
        expect("%d ranks, shared memory" % n, status == 0, (status, words[-2000:]))
    status, words = mpirun(2, [TESTS + "/test_coll_exact", "mpi"], OMPI_MCA_btl="self,tcp", OMPI_MCA_btl_tcp_if_include="lo")
    expect("2 ranks, tcp of MPI", status == 0, (status, words[-2000:]))


def play(act, actor, timeout, options=(ALONE,), n=3):
    """One actor among n ranks, which acts when the others wait for it: they say so by a FIFO."""
    with tempfile.TemporaryDirectory(prefix="ft-mpi-gate-") as at:
        os.mkfifo(at + "/gate")
        return mpirun(n, [*options, TESTS + "/test_coll_faults", "mpi", act, str(actor), str(timeout), at + "/gate"], seconds=240)


def fault(act, actor, timeout, texts, options=(ALONE,)):
    status, words = play(act, actor, timeout, options)
    expect(act + ": all ranks end by themselves", status >= 0, (status, words))
    for text, least in texts:
        expect("%s: '%s' from %d ranks" % (act, text, least), len(re.findall(text, words)) >= least, words)


def faults():
    """A rank that ended is named by all others, with its word if it left one; nothing waits for ever, not in MPI_Finalize either."""
    status, words = play("work", -1, 60, ())
    expect("nothing goes wrong: status 0 and no words", status == 0 and not words.strip(), (status, words))
    ended = r"\[collective\] rank 1 on \S+ ended[^\n]*in all_reduce over dp at update 12"
    fault("die", 1, 60, [(ended, 2)])
    fault("die-in-it", 1, 60, [(ended, 2)])
    # of two that miss it the slower one may hear first that the other one has given up
    fault("leave", 1, 60, [(ended, 1), (ended.replace("rank 1", r"rank \d"), 2)])
    fault("abort", 1, 60, [(r"\[collective\] rank 1 on \S+ ended: loss is NaN at update 12", 2)])
    fault("die", 0, 60, [(r"\[collective\] rank 0 on \S+ ended", 2)])
    fault("stay-away", 1, 3, [(r"\[timeout\] all_reduce over dp \(3 ranks\) at update 12 made no progress for 3 s: rank 1 is missing", 1)], options=())
    fault("other-call", 1, 60, [(r"\[bug\] rank 1 is in all_gather over world \(number 3, 40 bytes\), this rank in all_reduce over dp", 1)])


def same_as_tcp(work):
    for name, tensor, data in (("d2", 1, 2), ("t2", 2, 1), ("t2d2", 2, 2)):
        n = tensor * data
        job = ranks.make_job("%s/%s-tcp" % (work, name), tensor, data)
        by_tcp = os.path.dirname(job)
        ends = ranks.finish(ranks.start_ranks(BIN + "/fttrain", job, by_tcp, [0] * n))
        expect(name + " by tcp", not any(status for status, _ in ends), ends)
        by_mpi = "%s/%s-mpi" % (work, name)
        job = ranks.make_job(by_mpi, tensor, data)
        status, words = mpirun(n, [BIN + "/fttrain", job], cwd=by_mpi, FT_RUN_DIR=by_mpi)
        if not expect(name + " by mpi", status == 0, (status, words)):
            continue
        expect(name + ": auto took mpi", "collectives mpi" in words, words)
        a, b = ranks.bits_of(by_tcp), ranks.bits_of(by_mpi)
        expect(name + ": something to compare", len(a) == 1 + 2 * (n + 1) and len(a["metrics"]) >= 4, a)
        expect(name + ": the same bits", a == b, [k for k in sorted(set(a) | set(b)) if a.get(k) != b.get(k)])


def refused(work):
    job = ranks.make_job(work + "/refused")
    there = os.path.dirname(job)
    fttrain, mpi = BIN + "/fttrain", ["--set", "train.collectives=mpi"]
    # not started by an MPI: each rank would be a world of its own
    for status, words in ranks.finish(ranks.start_ranks(fttrain, job, there, [0, 0], *mpi)):
        expect("mpi without mpirun: refused", status == 2 and "was not started by mpirun" in words and "mpirun -n 2" in words, (status, words))
    # one rank moves nothing
    r = subprocess.run([fttrain, "-q", *mpi, "--set", "parallel.data=1", job], capture_output=True, text=True, cwd=there, env=ranks.clean_env(), timeout=120)
    expect("mpi, one rank alone", r.returncode == 0, r.stderr)
    shutil.rmtree(there + "/checkpoints")
    # tcp needs to be told where rank 0 is
    status, words = mpirun(2, [fttrain, "-q", "--set", "train.collectives=tcp", job], cwd=there)
    expect("tcp under mpirun without MASTER_ADDR", status == 2 and "has no MASTER_ADDR" in words and "set collectives = auto" in words, (status, words))
    # ranks that are started differently
    status, words = mpirun(1, [fttrain, "-q", job, ":", "-n", "1", fttrain, "-q", "--set", "train.seed=5", job], cwd=there)
    expect("different jobs", status == 2 and re.search(r"do not agree on \[train\] seed: .*1 on rank 0; 5 on rank 1", words), (status, words))


def other_nodes(work):
    """Ranks that are not all on one node: rank 0 tells an address that others reach, and a token. (Here they are on one, and are told they are not.)"""
    job = ranks.make_job(work + "/nodes")
    alone = "export OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0; exec %s/fttrain %s" % (BIN, job)
    status, words = mpirun(2, ["sh", "-c", alone], cwd=os.path.dirname(job))
    if "no address by which others could reach it" in words: # nothing but loopback here
        expect("no address: refused with the remedy", status == 2 and "set MASTER_ADDR" in words, (status, words))
    else:
        expect("two nodes", status == 0 and "collectives mpi" in words and "no FT_TOKEN" not in words, (status, words))


def no_plugin(work):
    """A program without the plugin beside it: auto is tcp, mpi is refused with what is missing."""
    job = ranks.make_job(work + "/bare")
    there = os.path.dirname(job)
    os.mkdir(there + "/bin")
    shutil.copy(BIN + "/fttrain", there + "/bin")
    fttrain = there + "/bin/fttrain"
    status, words = mpirun(2, [fttrain, "-q", "--set", "train.collectives=mpi", job], cwd=there)
    expect("no plugin: mpi", status == 2 and "libft_mpi.so: No such file" in words and "install" in words, (status, words))
    status, words = mpirun(2, [fttrain, "-q", job], cwd=there)
    expect("no plugin: auto without address", status == 2 and "has no MASTER_ADDR" in words and "libft_mpi.so" in words, (status, words))
    status, words = mpirun(2, [fttrain, job], cwd=there, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ranks.free_port()))
    expect("no plugin: auto with address", status == 0 and "collectives tcp" in words, (status, words))


def killed(work):
    """kill -9 of one rank in the middle: the others name it and end with 69; what was saved stays."""
    there = work + "/killed"
    job = ranks.make_job(there, 1, 3, updates=4, steps=200000, global_batch=3)
    at = there + "/metrics.jsonl"
    command = [MPIRUN, *OPTIONS, ALONE, "--output-filename", there + "/ranks:nocopy", "-n", "3", BIN + "/fttrain", "-q", "--set", "checkpoint.every=0", job]
    with open(there + "/words", "w+") as words, subprocess.Popen(command, stdout=words, stderr=words, cwd=there, env=env(FT_RUN_DIR=there),
                                                                 start_new_session=True) as p:
        until = time.monotonic() + 120
        while time.monotonic() < until and p.poll() is None and not (os.path.exists(at) and os.path.getsize(at)):
            time.sleep(0.05)
        found = [int(d) for d in os.listdir("/proc") if d.isdigit() and rank_of(d, there) == "1"]
        if expect("the rank to kill is there", len(found) == 1, found):
            os.kill(found[0], signal.SIGKILL)
        try:
            status = p.wait(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            status = -1
        words.seek(0)
        said = words_in(there + "/ranks") + words.read()
    expect("killed: all ranks end by themselves", status >= 0, (status, said))
    expect("killed: the others name it", len(re.findall(r"rank 1 on \S+ ended", said)) >= 2, said)
    left = [d for d in os.listdir("/proc") if d.isdigit() and rank_of(d, there)]
    expect("killed: nothing left", not left, left)


def rank_of(pid, folder):
    """Its rank, when this process is a rank of the run in folder."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as f:
            e = dict(x.split(b"=", 1) for x in f.read().split(b"\0") if b"=" in x)
        with open("/proc/%s/comm" % pid) as f:
            name = f.read().strip()
    except OSError:
        return None
    return e.get(b"OMPI_COMM_WORLD_RANK", b"").decode() if name == "fttrain" and e.get(b"FT_RUN_DIR", b"").decode() == folder else None


def train():
    work = tempfile.mkdtemp(prefix="ft-mpi-")
    for part in (same_as_tcp, refused, other_nodes, no_plugin, killed):
        part(work)
    shutil.rmtree(work)


version = subprocess.run([BIN + "/fttrain", "--version"], capture_output=True, text=True, timeout=60).stdout
if "collectives mpi\n" not in version:
    print("skipped: this build has no engine mpi (libopenmpi-dev was not there when it was configured)")
    sys.exit(77)
if not MPIRUN or "open-mpi.org" not in subprocess.run([MPIRUN, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, env=env()).stdout:
    print("skipped: no mpirun of Open MPI here (openmpi-bin)")
    sys.exit(77)
{"exact": exact, "faults": faults, "train": train}[sys.argv[2]]()
print("%d checks, %d failed" % (count, len(failed)))
sys.exit(bool(failed))
