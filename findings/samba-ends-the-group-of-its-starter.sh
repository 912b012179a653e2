#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Samba 4.17.12: `smbd --foreground --no-process-group`, told to end, ends every process of the group of the
# program that started it.
#
# Guess before the run: without a process group of its own smbd ends alone, with the processes that it has
# started itself, as it does with `--foreground` only. Seen: on SIGTERM it signals its whole group. With
# `--no-process-group` that is the group of its starter: a script's other children, and the script itself.
# Test harnesses and supervisors that pass the option, so that a signal of the terminal reaches smbd, end with
# it. Leave the option out, or start smbd in a group of its own.
#
# Exit 0 while the program does so, 1 when it does otherwise, 2 when it cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$folder"' EXIT
root=$folder/root

debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >/dev/null 2>&1 || exit 2
# As this host reaches its mirrors.
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp -a /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
chroot "$root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends samba="2:4.17.12*"' \
    >/dev/null 2>&1 || exit 2
chroot "$root" smbd --version
mount -t proc proc "$root/proc"

mkdir "$root/t"
for part in private state cache lock pid ncalrpc; do mkdir "$root/t/$part"; done
cat >"$root/t/smb.conf" <<'CONF'
[global]
smb ports = 4450
disable netbios = yes
private dir = /t/private
state directory = /t/state
cache directory = /t/cache
lock directory = /t/lock
pid directory = /t/pid
ncalrpc dir = /t/ncalrpc
log file = /t/log
CONF

# A starter with another child, in a session of its own. Prints whether that child outlives smbd.
cat >"$root/t/starter" <<'STARTER'
sleep 60 &
sibling=$!
smbd "$@" -s /t/smb.conf >/t/output 2>&1 &
smbd=$!
# Set only now: children inherit what is ignored.
trap : TERM
for _ in $(seq 100); do [ -s /t/pid/smbd.pid ] && break; sleep 0.1; done
sleep 1
kill -TERM "$smbd" || { cat /t/output; exit 1; }
wait "$smbd" || true
sleep 1
if kill -0 "$sibling" 2>/dev/null; then echo alone; kill -KILL "$sibling"; else echo "with its starter's children"; fi
STARTER
ends() {
    rm -f "$root/t/pid/smbd.pid"
    unshare --net sh -c 'ip link set lo up; exec chroot "$@"' sh "$root" setsid --wait sh /t/starter "$@"
}
plain=$(ends --foreground)
shared=$(ends --foreground --no-process-group)
echo "smbd --foreground ends $plain; with --no-process-group it ends $shared"
[ "$plain" = alone ] && [ "$shared" = "with its starter's children" ]
