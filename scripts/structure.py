#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structure in figures, of this tree or of another one: circles of files, long functions, makers of TCP and UDP frames, lines of code,
and the files of crate dataplane that a packet's way leads through.

  scripts/structure.py [ROOT] [--program FILE --policy FILE]

With a program (a debug build: what is inlined is not seen) and valgrind, the functions of crate dataplane are listed that run once more for each
further TCP data packet of a connection: a capture with 21 data packets is compared with one of 20.
"""
import argparse
import collections
import pathlib
import re
import struct
import subprocess
import sys
import tempfile


def rust(root):
    """Sources of the project."""
    out = subprocess.run(["git", "-C", root, "ls-files", "*.rs"], capture_output=True, text=True, check=True).stdout
    return [(name, (root / name).read_text()) for name in out.split() if (root / name).exists()]


def long_functions(sources, most=100):
    """Functions of more lines than that; rustfmt has put their last brace below their first word."""
    found = []
    for name, text in sources:
        lines = text.split("\n")
        for at, line in enumerate(lines):
            head = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe )*fn (\w+)", line)
            if not head or line.rstrip().endswith((";", "}")):
                continue
            end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith(head[1] + "}")), at)
            if end - at + 1 > most:
                found.append(f"{name}:{at + 1} {head[2]} ({end - at + 1} lines)")
    return found


def makers(sources):
    """Functions that write TCP or UDP headers for tests, by their names."""
    return [name for name, text in sources if re.search(r"fn (?:tcp|udp|segment|datagram)_?(?:frame|packet)\b", text)]


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(up, seq, ack, flags, payload=b""):
    """An Ethernet frame of the one connection."""
    ends = [bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])]
    ports = [40000, 8080]
    if not up:
        ends.reverse()
        ports.reverse()
    tcp = struct.pack("!HHIIBBHHH", *ports, seq, ack, 5 << 4, flags, 65535, 0, 0) + payload
    padded = ends[0] + ends[1] + struct.pack("!BBH", 0, 6, len(tcp)) + tcp + b"\0" * (len(tcp) % 2)
    tcp = tcp[:16] + struct.pack("!H", checksum(padded)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0, *ends)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\0" + ip + tcp


def capture(path, packets):
    """A connection of so many data packets from the client, each acknowledged, which is not closed."""
    frames = [frame(True, 1, 0, 2), frame(False, 1, 2, 18), frame(True, 2, 2, 16)]
    for number in range(packets):
        frames.append(frame(True, 2 + 100 * number, 2, 24, b"x" * 100))
        frames.append(frame(False, 2, 102 + 100 * number, 16))
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, data in enumerate(frames):
            out.write(struct.pack("<IIII", 1700000000 + number // 1000, number % 1000 * 1000, len(data), len(data)) + data)


def calls(program, policy, folder, packets):
    """How often each function was entered."""
    capture(folder / "in.pcap", packets)
    counts = folder / "counts"
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", program, "inspect", "--ips", "--policy", policy]
    ran = subprocess.run([*map(str, words), "--out", folder / "out", folder / "in.pcap"], check=False, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{ran.stderr}")
    names, entered, target = {}, collections.Counter(), [None, None]

    def name(text):
        number, _, rest = text.partition(" ")
        if rest:
            names[number] = rest
        return names.get(number, number)

    for line in counts.read_text(errors="replace").split("\n"):
        key, _, value = line.partition("=")
        if key in ("fl", "fi", "fe", "cfi", "cfl"):
            file = name("f" + value)
            if key.startswith("c"):
                target[0] = file
            else:
                target = [file, None]
        elif key in ("fn", "cfn"):
            function = name("n" + value)
            if key == "cfn":
                target[1] = function
        elif key == "calls" and target[1]:
            entered[target[1]] += int(value.split()[0])
    return entered


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    options.add_argument("--program", type=pathlib.Path)
    options.add_argument("--policy", type=pathlib.Path)
    given = options.parse_args()
    sources = rust(given.root)
    code = [(name, text) for name, text in sources if "/tests/" not in name and not name.endswith("tests.rs")]
    tidy = subprocess.run(["cargo", "xtask", "tidy"], cwd=given.root, capture_output=True, text=True, check=False).stdout
    print("circles of more than three files:", next((line for line in tidy.split("\n") if line.startswith("circles")), "not checked"))
    print("functions over 100 lines:", *(long_functions(code) or ["none"]), sep="\n  ")
    print("makers of TCP and UDP frames:", *(sorted(makers(sources)) or ["none"]), sep="\n  ")
    print("lines of Rust:", sum(text.count("\n") for _, text in sources))
    print("  of crate dataplane:", sum(text.count("\n") for name, text in sources if name.startswith("crates/dataplane/src")))
    if given.program:
        with tempfile.TemporaryDirectory() as folder:
            few, more = (calls(given.program, given.policy, pathlib.Path(folder), packets) for packets in (20, 21))
        # The stages were a part of crate dataplane, and are a crate of their own since.
        for crate in ("dataplane", "stages"):
            functions = sorted(name for name in more if more[name] > few[name] and f"bartizan_{crate}::" in name)
            modules = sorted({"::".join(re.sub(r"^<|<.*", "", name).split("::")[:-1]) for name in functions})
            print(f"functions of crate {crate} entered for a TCP data packet and its acknowledgement:", len(functions))
            print(*functions, sep="\n  ")
            print("in modules:", len(modules), *modules, sep="\n  ")


if __name__ == "__main__":
    main()
