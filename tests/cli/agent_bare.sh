#!/bin/sh
# agent_bare.sh BIN: ftlaunch-agent runs on a bare node: it needs libc only and is at most 1 MiB. Skipped for sanitized builds.
set -eu
agent=$1/ftlaunch-agent
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
needed=$(readelf -d "$agent" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
case $needed in *asan*|*ubsan*|*tsan*) echo "skipped: a sanitized build"; exit 77 ;; esac
[ "$needed" = libc.so.6 ] || { echo "it needs: $needed"; exit 1; }
cp "$agent" "${TMPDIR:-/tmp}/agent.$$"
strip "${TMPDIR:-/tmp}/agent.$$"
bytes=$(wc -c <"${TMPDIR:-/tmp}/agent.$$")
rm -f "${TMPDIR:-/tmp}/agent.$$"
[ "$bytes" -le 1048576 ] || { echo "stripped it has $bytes bytes"; exit 1; }
[ "$("$agent" --version | cut -d' ' -f1)" = ftlaunch-agent ]
if "$agent" --what 2>/dev/null; then exit 1; else [ $? -eq 2 ]; fi
