#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a bare Debian 12 with Rust lacks. Installs it as root, saying what and why; without root it says what
# is needed.
#
#   scripts/needs.sh PURPOSE...     purposes: build, test, run, bench, good, attack, faults, rtl, package,
#                                   test-package
#
# Exit 1 when something is missing without which the purpose cannot be served.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"

have_program() { command -v "$1" >/dev/null 2>&1; }
have_library() { [[ $(ldconfig -p 2>/dev/null) == *"$1"* ]]; }
have_package() { pkg-config --exists "$1" 2>/dev/null; }
have_module() { /usr/bin/python3 -c "import $1" 2>/dev/null; }
have_file() { [ -e "$1" ]; }
have_yaml() { /usr/bin/python3 -c 'import yaml' 2>/dev/null; }

# purpose | needed or useful | how to see that it is there | Debian package | why
table() {
    cat <<'TABLE'
build|needed|program cc|gcc libc6-dev|links the program and compiles PCRE2, which a dependency brings
build|needed|program clang|clang|compiles the programs of the XDP level and of guests for BPF, which gcc cannot in Debian 12
build|needed|file /usr/include/linux/bpf.h|linux-libc-dev|numbers of the kernel's helpers, for these programs
test|useful|library libhs.so.5|libhyperscan5|searches large pattern sets; without it aho-corasick does
test|useful|program ip|iproute2|makes the network namespaces that the tests of live ports use
test|useful|program ethtool|ethtool|switches offloads off on the test interfaces, and polling on for those of the XDP level
test|useful|program strace|strace|counts the system calls of an inline run
test|useful|yaml -|python3 python3-yaml|the runner of the compatibility suite
test|useful|module jsonschema|python3-jsonschema|checks its events by Suricata's schema
test|useful|program nginx|nginx-light|a receiver of the receiver harness
test|useful|program exim4|exim4-daemon-light|a receiver of mail of the receiver harness
test|useful|program vsftpd|vsftpd|a receiver of files over FTP of the receiver harness
test|useful|program smbd|samba|a receiver of files over SMB of the receiver harness
test|useful|program sshd|openssh-server|a receiver of identification lines of the receiver harness
test|useful|program curl|curl|a client of the receiver harness
test|useful|program openssl|openssl|makes its certificate, and serves curl on the stream path
test|useful|program python3|python3|the programs of guests in tests of the stream path
test|useful|program iperf3|iperf3|sends both ways on the stream path
test|useful|program redis-server|redis-server redis-tools|serves its clients on the stream path
test|useful|program node|nodejs|serves itself on the stream path
test|useful|program java|default-jdk-headless|serves itself on the stream path
test|useful|program nft|nftables|makes the hop before its receivers, which drops what has run out of hops
test|useful|program nmap|nmap|scans hosts behind the program, which has to find it
test|useful|library libmagic.so.1|libmagic1|says what kind a file is
test|useful|program verilator|verilator|reads the generated SystemVerilog package
attack|useful|library libhs.so.5|libhyperscan5|searches large pattern sets; without it aho-corasick does
attack|needed|program ip|iproute2|makes the network namespaces
attack|needed|program ethtool|ethtool|switches offloads off on their interfaces
attack|needed|program nginx|nginx-light|a receiver
attack|needed|program python3|python3|a receiver: a TLS server on OpenSSL that says which name it was asked for
attack|needed|program openssl|openssl|makes its certificate
attack|needed|program curl|curl|a client of the generator's servers
attack|useful|program nft|nftables|makes the hop before the receivers, which drops what has run out of hops
attack|needed|program exim4|exim4-daemon-light|a receiver of mail
attack|needed|program vsftpd|vsftpd|a receiver of files over FTP
attack|needed|program smbd|samba|a receiver of files over SMB
attack|needed|program sshd|openssh-server|a receiver of identification lines
attack|needed|program ssh-keygen|openssh-client|makes its key
faults|needed|program ip|iproute2|makes the links between which the agents lie
faults|needed|program ethtool|ethtool|switches offloads off on them
faults|needed|program python3|python3|kills, cuts, fills disks, sends traffic and changes
rtl|needed|program verilator|verilator|makes the model of the SmartNIC's logic, and reads it strictly
rtl|needed|program g++|g++|compiles the model
rtl|needed|program yosys|yosys|counts what the logic takes of an FPGA, and makes its proofs
rtl|needed|program z3|z3|decides the proofs
package|needed|program strip|binutils|takes the symbols out of the program
package|needed|program dpkg-shlibdeps|dpkg-dev|names the libraries that the package depends on
package|needed|program /usr/bin/python3|python3|writes the list of crates and the container image
package|useful|program lintian|lintian|checks the package
test-package|needed|program debootstrap|debootstrap|makes the Debian roots that packages are installed into
test-package|needed|program ip|iproute2|makes the network namespaces of the first alert
test-package|needed|program curl|curl|asks what raises it
test-package|needed|program lintian|lintian|checks the package
run|useful|library libhs.so.5|libhyperscan5|searches large pattern sets; without it aho-corasick does
run|useful|program ip|iproute2|makes client, server and middle host as network namespaces
run|useful|program ethtool|ethtool|switches offloads off on their interfaces
run|useful|program curl|curl|the client that sends the sample requests
run|useful|program nginx|nginx-light|the server that answers them
run|useful|program python3|python3|sends what no ordinary program sends
good|useful|library libhs.so.5|libhyperscan5|searches large pattern sets; without it aho-corasick does
good|useful|program ip|iproute2|makes the hosts as network namespaces
good|useful|program ethtool|ethtool|switches offloads off on their interfaces
good|useful|program python3|python3|drives the cases
good|useful|program curl|curl|fetches and puts files over HTTP, FTP and SMTP
good|useful|program nginx|nginx-light|serves them
good|useful|program openssl|openssl|makes its certificate
good|useful|program wrk|wrk|many HTTP clients at once
good|useful|program dnsmasq|dnsmasq-base|answers names
good|useful|program dig|bind9-dnsutils|asks for them
good|useful|program ssh|openssh-client|remote shell, its client
good|useful|program sshd|openssh-server|and its server
good|useful|module aiosmtpd|python3-aiosmtpd|takes mail
good|useful|module pyftpdlib|python3-pyftpdlib|serves files by FTP
good|useful|module websockets|python3-websockets|WebSocket, client and server
good|useful|program psql|postgresql postgresql-contrib|a database
good|useful|program redis-server|redis-server|another one
good|useful|program iperf3|iperf3|many streams
good|useful|program ping|iputils-ping|large and small packets
bench|needed|program python3|python3|drives the measurements
bench|useful|library libhs.so.5|libhyperscan5|searches large pattern sets; without it aho-corasick does
bench|useful|program ip|iproute2|makes the network namespaces
bench|useful|program ethtool|ethtool|switches offloads off
bench|useful|program iperf3|iperf3|bulk traffic
bench|useful|package libdpdk|libdpdk-dev pkg-config|the peer of the classification bench, librte_acl
bench|useful|program wrk|wrk|HTTP requests
bench|useful|program valgrind|valgrind|counts instructions
bench|useful|program nginx|nginx-light|answers them
TABLE
}

missing=() lacking=0
while IFS='|' read -r purpose weight kind packages why; do
    case " $* " in *" $purpose "*) ;; *) continue ;; esac
    # shellcheck disable=SC2086
    have_${kind% *} "${kind#* }" && continue
    missing+=("$weight|$packages|$why")
done < <(table | sort -u -t'|' -k4,4 -k1,1)

if [ ${#missing[@]} -gt 0 ]; then
    packages=()
    for entry in "${missing[@]}"; do
        IFS='|' read -r weight package why <<<"$entry"
        echo "missing ($weight): $package - $why"
        # shellcheck disable=SC2206
        packages+=($package)
    done
    command="apt-get install -y --no-install-recommends ${packages[*]}"
    if [ "$(id -u)" = 0 ] && have_program apt-get; then
        echo "installing: $command"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq || echo "apt-get update failed: continuing with the present package lists"
        $command >/dev/null || echo "apt-get failed: continuing without these packages"
    else
        echo "not root: run as root: $command"
    fi
    for entry in "${missing[@]}"; do
        IFS='|' read -r weight package why <<<"$entry"
        [ "$weight" = needed ] || continue
        # shellcheck disable=SC2086
        dpkg -s $package >/dev/null 2>&1 || { echo "still missing and needed: $package"; lacking=1; }
    done
fi

# Rust itself: the version that the workspace asks for, with its formatter and lints.
if ! have_program cargo; then
    echo "missing (needed): Rust 1.95 or newer with cargo - https://rustup.rs"
    exit 1
fi
case " $* " in *" test "*)
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        echo "missing: $component - checks the form of the code"
        if have_program rustup; then rustup component add "$component"; else echo "no rustup: install $component by hand"; fi
    done
    ;;
esac
exit "$lacking"
