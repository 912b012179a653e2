#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The compiler, as cargo calls it here (.cargo/config.toml): builds with opt-level 3 are guided by profiles/release.profdata, which
# says how often each branch is taken in real traffic. `make profile` makes it anew.
#
#   PROFILE=off cargo build --release       without it
#   PROFILE=DIR cargo build --release       a program that writes such profiles into DIR
rustc=$1
shift
file=${0%/*}/../profiles/release.profdata
# The LLVM that wrote the file; older ones cannot read it.
llvm=22

case " $* " in
*" opt-level=3 "*) ;;
*) exec "$rustc" "$@" ;;
esac
case ${PROFILE:-} in
off) exec "$rustc" "$@" ;;
/*) exec "$rustc" "$@" "-Cprofile-generate=$PROFILE" ;;
esac
own=$("$rustc" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if [ ! -f "$file" ] || [ "${own:-0}" -lt "$llvm" ]; then
    case " $* " in
    *" --crate-name bartizan "*) echo "warning: built without profiles/release.profdata, which needs LLVM $llvm (this rustc has ${own:-none}): 20 % slower" >&2 ;;
    esac
    exec "$rustc" "$@"
fi
# A function that has changed since is built without its counts; that is no mistake.
exec "$rustc" "$@" "-Cprofile-use=$file" -Cllvm-args=-no-pgo-warn-mismatch
