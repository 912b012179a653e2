#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The compiler, as cargo calls it here (.cargo/config.toml): builds with opt-level 3 are guided by
# profiles/release.profdata, which says how often each branch is taken in real traffic. `make profile` makes
# it anew.
#
#   BARTIZAN_PROFILE=off cargo build --release     without it: quicker to build, a sixth more instructions a
#   packet BARTIZAN_PROFILE=DIR cargo build --release     a program that writes such profiles into DIR, an
#   absolute path BARTIZAN_PROFILE=use, or not set               with it
rustc=$1
shift
file=${0%/*}/../profiles/release.profdata
# The LLVM that wrote the file; older ones cannot read it.
llvm=22

case " $* " in
*" opt-level=3 "*) ;;
# What tests say of themselves runs once; what they try, the libraries, is optimised (Cargo.toml). A program
# of unit tests is both: it takes a third of the time to build, and seconds more to run.
*" opt-level=1 "*" --test "*) exec "$rustc" "$@" -Copt-level=0 ;;
*) exec "$rustc" "$@" ;;
esac
case ${BARTIZAN_PROFILE:-use} in
use) ;;
off) exec "$rustc" "$@" ;;
/*) exec "$rustc" "$@" "-Cprofile-generate=$BARTIZAN_PROFILE" ;;
*)
    echo "error: BARTIZAN_PROFILE=$BARTIZAN_PROFILE: say \`use\`, \`off\`, or the absolute path of a folder for new profiles" >&2
    exit 1
    ;;
esac
own=$("$rustc" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if [ ! -f "$file" ] || [ "${own:-0}" -lt "$llvm" ]; then
    case " $* " in
    *" --crate-name bartizan "*) echo "warning: built without profiles/release.profdata, which needs LLVM $llvm (this rustc has ${own:-none}): a sixth more instructions a packet" >&2 ;;
    esac
    exec "$rustc" "$@"
fi
# A function that has changed since is built without its counts; that is no mistake. LLVM's own threshold for
# calls that a profile calls hot (3000) makes a larger and slower program, and the build takes half as long
# again (docs/design/0015-profile.md).
exec "$rustc" "$@" "-Cprofile-use=$file" -Cllvm-args=-no-pgo-warn-mismatch -Cllvm-args=-hot-callsite-threshold=300
