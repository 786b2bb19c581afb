#!/usr/bin/env python3
"""Hostile login shells and rc files: the agent begins behind any of them, and nothing of them gets into the output of ranks."""
import glob
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bed import Bed, Checks, sh

# Takes `-c WORD` of plain letters and nothing else; fails on anything that needs a shell.
PICKY = r"""#!/bin/bash
[ $# = 2 ] && [ "$1" = -c ] && [[ "$2" =~ ^[A-Za-z0-9_./+-]+$ ]] || { echo "picky: I do not take: $*" >&2; exit 64; }
exec "$2"
"""
NOISY = "echo 'Welcome to the noisy node, please read the policy'\necho 'warning: quota' >&2\n"
READS = "read -p 'press return' x\n"


def main():
    c = Checks()
    with Bed(8, sshd_more="Banner /etc/hostname") as bed:
        for node in bed.names:  # a home of its own for each, but the keys
            sh(*bed.enter(node), "sh", "-c", "mkdir -p /run/home/.ssh && cp -r %s/.ssh/. /run/home/.ssh/ && chmod -R go= /run/home/.ssh" % bed.home)
            bed.shell(node, "/bin/bash", "/run/home")
        bed.shell("node02", bed.write(bed.dir + "/picky", PICKY, 0o755), "/run/home")
        rc = {"node03": NOISY, "node04": "sleep 3\n", "node06": READS, "node07": NOISY * 300}
        for node, text in rc.items():
            sh(*bed.enter(node), "sh", "-c", 'printf %s "$0" > /run/home/.bashrc', text)
        path = "/run/gone"
        bed.shell("node05", "/bin/bash", path)  # no home; keys elsewhere
        sh(*bed.enter("node05"), "sh", "-c", "printf 'StrictModes no\\nAuthorizedKeysFile %s/.ssh/authorized_keys\\n' >> %s/node05/sshd_config && kill -HUP $(cat /run/sshd.pid)" % (bed.home, bed.dir))
        job = bed.write("job.ini", "[cluster]\ntransport = ssh\n[nodes]\nnode01 =\nnode02 =\nnode03 =\nnode04 =\nnode06 =\nnode07 =\n")
        ranks = sorted(["[%d node%02d] node%02d" % (i, n, n) for i, n in enumerate((1, 2, 3, 4, 6, 7))])

        def good(what, *more):
            r = bed.run("ftlaunch", "run", job, *more, "--", "hostname")
            c.eq(r.rc, 0, what, r)
            c.eq(sorted(r.out.splitlines()), ranks, "output, " + what, r)
            c.ok("Welcome" not in r.err and "quota" not in r.err and "press" not in r.err, "no banner on the console, " + what, r)
            files = "".join(open(f).read() for f in glob.glob(bed.work + "/runs/*/ranks/*.log"))
            c.ok("Welcome" not in files and "quota" not in files, "no banner in files, " + what)
            c.eq(bed.ps_within(90), [], "left behind, " + what)
            return r

        # sent on the first run (each login is paid twice: what is on PATH, then ours), remembered on the second
        good("staged")
        r = good("staged before")
        c.eq(r.err.count("node04: slow login"), 1, "once", r)
        good("installed", "--set", "ssh.agent=" + bed.bin + "/ftlaunch-agent")
        # no home folder: the agent goes elsewhere
        r = bed.run("ftlaunch", "run", "--set", "cluster.transport=ssh", "--set", "nodes.node05=slots=1", "--", "hostname")
        c.eq((r.rc, r.out), (0, "[0 node05] node05\n"), "home folder missing", r)
        # every login shell that is installed here, each with a noisy rc file, the agent sent anew
        rc = {"dash": ".profile", "bash": ".bashrc", "zsh": ".zshenv", "tcsh": ".tcshrc", "fish": ".config/fish/config.fish"}
        for shell, name in rc.items():
            path = shutil.which(shell)
            if not path:
                print("note: %s is not installed" % shell)
                continue
            bed.shell("node08", path, "/run/home")
            sh(*bed.enter("node08"), "sh", "-c", 'rm -rf /run/home/.cache; mkdir -p /run/home/.config/fish; printf %s "$0" > /run/home/$1', NOISY, name)
            shutil.rmtree(bed.home + "/.local", ignore_errors=True)
            r = bed.run("ftlaunch", "run", "--set", "cluster.transport=ssh", "--set", "nodes.node08=slots=1", "--", "hostname")
            c.eq((r.rc, r.out), (0, "[0 node08] node08\n"), shell, r)
            c.ok("Welcome" not in r.err and "quota" not in r.err, "no banner on the console, " + shell, r)
        # a shell that runs nothing: named, soon, with its words
        bed.shell("node08", "/usr/sbin/nologin", "/run/home")
        r = bed.run("ftlaunch", "run", "--set", "cluster.transport=ssh", "--set", "nodes.node08=slots=1", "--set", "ssh.timeout=90s", "--", "true")
        c.eq(r.rc, 2, "nologin", r)
        c.has(r.err, "This account is currently not available", "the shell's words", r)
        c.ok(r.s < 60, "nologin is seen at once, not at the timeout", r)
        c.eq(bed.ps_within(90), [], "left behind by nologin")
    return c.end()


sys.exit(main())
