#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the program is linked of: a CycloneDX list, and the licence texts of all crates.

Source: `cargo metadata` of the locked dependencies, without those of tests and builds. The texts are those that each crate's
source has; libraries in C within crates are in NOTICE.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

NAMES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def linked(metadata):
    """The packages that the program is linked of, by name and version."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(key for key, package in packages.items() if package["name"] == "bartizan")
    found, waiting = {}, [root]
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        uses = [
            dep["pkg"]
            for dep in nodes[key]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        ]
        found[key] = uses
        waiting.extend(uses)
    return root, packages, found


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums, version):
    own = package["source"] is None
    entry = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": version if own else package["version"],
        "licenses": [{"expression": (package["license"] or "").replace("/", " OR ")}],
        "purl": purl(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def locked_checksums():
    """The checksums of Cargo.lock, by name and version."""
    text = pathlib.Path("Cargo.lock").read_text()
    found = {}
    for block in text.split("[[package]]"):
        values = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', block, re.MULTILINE))
        if "checksum" in values:
            found[values["name"], values["version"]] = values["checksum"]
    return found


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    return [path for path in sorted(folder.iterdir()) if path.is_file() and NAMES.match(path.name)]


def notices(packages):
    """The licence texts, each once, with the crates that it is of."""
    by_text, without = {}, []
    for package in packages:
        files = texts(package)
        if not files:
            without.append(package)
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            _, crates = by_text.setdefault(hashlib.sha256(text.encode()).hexdigest(), (text, []))
            crates.append(f"{package['name']} {package['version']}")
    lines = ["Bartizan is linked of the crates below, each under the licence that stands after it.", ""]
    lines += [f"{package['name']} {package['version']}: {package['license']}" for package in packages]
    if without:
        names = ", ".join(f"{package['name']} {package['version']}" for package in without)
        lines += ["", f"Without a text in their source: {names}. Their licences are named above."]
    for text, crates in by_text.values():
        lines += ["", "=" * 80, ", ".join(crates), "", text]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--sbom", required=True, type=pathlib.Path)
    parser.add_argument("--notices", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    platform = re.search(r"^host: (.*)$", subprocess.check_output(["rustc", "-vV"], text=True), re.MULTILINE)[1]
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={platform}"]
    root, packages, found = linked(json.loads(subprocess.check_output(command)))
    order = sorted(found, key=lambda key: (packages[key]["name"], packages[key]["version"]))
    foreign = [packages[key] for key in order if packages[key]["source"] is not None]
    if len(foreign) < 50:
        sys.exit(f"sbom: only {len(foreign)} crates of others were found; `cargo metadata` says something else than expected")
    checksums = locked_checksums()
    time = int(os.environ["SOURCE_DATE_EPOCH"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": subprocess.check_output(
                ["date", "-u", "-d", f"@{time}", "+%Y-%m-%dT%H:%M:%SZ"], text=True
            ).strip(),
            "component": component(packages[root], checksums, arguments.version) | {"type": "application"},
        },
        "components": [component(packages[key], checksums, arguments.version) for key in order if key != root],
        "dependencies": [
            {"ref": purl(packages[key]), "dependsOn": sorted(purl(packages[use]) for use in found[key])}
            for key in order
        ],
    }
    arguments.sbom.write_text(json.dumps(document, indent=1) + "\n")
    arguments.notices.write_text(notices(foreign))


main()
