"""Starting a run and looking at it while it lives."""
import subprocess
import time


def start(bed, job, *argv, **kw):
    p = bed.popen("ftlaunch", "run", job, *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    p.t = time.monotonic()
    return p


def wait_for(c, bed, n, text, seconds=120):
    """Until n processes on the nodes have this in their command line."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        if sum(text in l for l in bed.ps(*bed.names)) >= n:
            return True
        time.sleep(0.05)
    return c.ok(False, "%d x '%s' were started" % (n, text), bed.ps())


def finish(p, timeout=240):
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
    p.out, p.err, p.rc, p.s = out.decode(errors="replace"), err.decode(errors="replace"), p.returncode, time.monotonic() - p.t
    return p
