#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structure in figures, of this tree or of another one: circles of files, long functions, makers of TCP and UDP frames, lines of code,
the counts that the structure has to keep, each with its bound and its places, and the files of crate dataplane that a packet's way leads through.

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


def bare(text):
    """The code of a source, its lines in their places: without unit tests at its end, comments and the insides of attributes."""
    text = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, maxsplit=1, flags=re.M)[0]
    return "\n".join(re.sub(r"(^|\s)//.*", "", line) for line in text.split("\n"))


def places(sources, pattern, files=lambda _: True):
    """Lines of code that have a pattern: file, number, text."""
    return [(name, number, line.strip()) for name, text in sources if files(name)
            for number, line in enumerate(bare(text).split("\n"), 1) if re.search(pattern, line)]


def packet_types(sources):
    """Structs of the data path with a packet, or with a struct that has one: each packs a packet's facts anew.

    A reference to such a struct, and a function that takes one, pack nothing. The causes of a call to functions
    (an enum) are a part of the context that has them."""
    folders = re.compile(r"crates/(dataplane|stages|function|functions|detect)/src/")
    structs = {}
    for name, text in sources:
        if folders.match(name):
            for found in re.finditer(r"^\s*(?:pub(?:\([a-z]+\))? )?struct (\w+)<[^>]*>\s*\{(.*?)^\s*\}", bare(text), re.M | re.S):
                structs[found[1]] = (name, bare(text)[: found.start()].count("\n") + 1, found[2])
    carriers, last = {"PacketView", "Cause"}, None
    while last != carriers:
        last = set(carriers)
        owned = "|".join(sorted(carriers - {"PacketView"}))
        field = re.compile(r":(?!\s*fn\b)(?:[^,&]*\b(?:" + owned + r")\b|[^,]*\bPacketView\b)")
        carriers |= {struct for struct, (_, _, body) in structs.items() if field.search(body)}
    return [(*structs[struct][:2], struct) for struct in sorted(carriers - {"PacketView", "Cause"})]


def section_parses(sources):
    """Places that read a section of a policy into its type, by type: the reader of all sections, for each type that is
    asked of it, and every other place that reads the type."""
    code = [(name, text) for name, text in sources if "/src/" in name]
    read = r"\bread::read(?:_at)?::<(\w+Section)\b|(\w+Section)::deserialize\("
    asked = r"\b(?:value|section_of|classes::read|read_and_make)::<(\w+Section)\b"
    reader = places(code, r"\bread::read(?:_at)?::<T>", lambda name: name == "crates/config/src/policy/section.rs")
    found = {re.search(asked, line)[1]: list(reader) for _, _, line in places(code, asked)}
    for name, number, line in places(code, read):
        kind = re.search(read, line)
        found.setdefault(kind[1] or kind[2], []).append((name, number, line))
    return found


def test_modules(sources):
    """Files of modules that only tests have."""
    found = set()
    for name, text in sources:
        folder = name.rsplit("/", 1)[0] if name.endswith(("/lib.rs", "/mod.rs")) else name.removesuffix(".rs")
        for module in re.findall(r"^#\[cfg\(test\)\]\n(?:#\[.*\n)*mod (\w+);", text, re.M):
            found |= {f"{folder}/{module}.rs", f"{folder}/{module}/mod.rs"}
    return found


def protocol_names(sources):
    """Names, aliases and families of all protocols, and the modules in which they are declared."""
    names, modules = set(), set()
    for name, text in sources:
        declared = re.search(r"crates/applayer/src/protocols/(\w+)", name)
        if declared and declared[1] != "mod":
            modules.add(declared[1])
            for spec in re.findall(r": ProtocolSpec = ProtocolSpec \{(.*?)records:", text, re.S):
                names.update(re.findall(r'"([\w-]+)"', spec))
    return names, modules


def comparisons(sources):
    """Names and numbers of protocols in code of applayer, detect and what runs them, outside the protocols' own files."""
    names, modules = protocol_names(sources)
    words, folders = "|".join(sorted(names)), "|".join(sorted(modules))
    named = rf'"(?:{words})"|app-layer\.protocols\.(?:{words})\b|protocols::(?:{folders})\b|\bProtocolId\(\d'
    # A keyword of a protocol stands in a file with the name of the protocol.
    keywords = rf"crates/detect/src/keywords/({'|'.join(sorted(names | modules))}|mod|unsupported)\.rs"
    own = re.compile(rf"crates/applayer/src/(protocols/|suite|limits)|/tests?[./]|tests\.rs|{keywords}")
    inside = re.compile(r"crates/(applayer|detect|stages|dataplane|functions|runtime)/src/")
    tests = test_modules(sources)
    # `dns` is a key of policies, too.
    return [place for place in places(sources, named, lambda name: bool(inside.match(name)) and not own.search(name) and name not in tests)
            if not re.match(r"(example|syntax|summary|note|help):", place[2]) and "classes::error" not in place[2]]


def recipes(root):
    """Files of each kind of extension, by the recipes that the scaffold keeps to."""
    found = {}
    for page in sorted((root / "docs").glob("*.md")):
        for kind, rows in re.findall(r"<!-- cargo xtask new (\w+) -->(.*?)<!-- end of the files -->", page.read_text(), re.S):
            found[kind] = re.findall(r"^\| `([^`]+)`", rows, re.M)
    return found


def show(title, found, most):
    """A count with its bound, and its places."""
    print(f"{title}: {len(found)} (at most {most}){'' if len(found) <= most else ', TOO MANY'}")
    for place in found:
        print("  " + (place if isinstance(place, str) else f"{place[0]}:{place[1]} {place[2]}"))


def kept(root, sources):
    """The counts that the structure has to keep."""
    product = [(name, text) for name, text in sources if "/src/" in name and not name.endswith("tests.rs")]
    show("drivers (loops that take from a source)", places(product, r"source\.take\(&mut "), 1)
    show("walks over a frame's packets", places(product, r"fn \w+<V: Visitor>\(&mut self"), 1)
    show("types that carry a packet's facts", packet_types(product), 3)
    parses = section_parses(product)
    worst = max(parses.values(), key=len, default=[])
    show("parses of one section of a policy, of the section with most", worst, 1)
    print("  all:", ", ".join(f"{kind} {len(found)}" for kind, found in sorted(parses.items())))
    lines = sum(len([line for line in bare(text).split("\n") if line.strip()]) for name, text in product if name.startswith("crates/bartizan/src"))
    print(f"lines of crate bartizan without tests, comments and blanks: {lines} (at most 4000){'' if lines <= 4000 else ', TOO MANY'}")
    driver = {"crates/runtime/src/levels.rs"}
    users = {name for name, text in sources if re.search(r"\bbartizan_xdp::", bare(text))}
    outside = [name for name in sorted(users) if not re.match(r"crates/xdp/|xtask/|benches/", name) and "/tests/" not in name and name not in driver]
    show("files outside crate xdp, its driver, their tests and benches that use bartizan_xdp", outside, 0)
    show("names of protocols outside their own files", comparisons(product), 0)
    bounds = {"event": 3, "level": 4, "source": 4}
    for kind, files in recipes(root).items():
        most = bounds.get(kind)
        print(f"files of a new {kind}: {len(files)}" + (f" (at most {most})" if most else ""), *files, sep="\n  ")


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
    kept(given.root, sources)
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
