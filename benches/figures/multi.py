# SPDX-License-Identifier: Apache-2.0
"""One more tenant on ET Open in Suricata: `register-tenant` on the command socket of one that watches the link and has a tenant already."""
import json
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "reloads"))
import watched  # noqa: E402

PATIENCE = 120
TENANT = """%YAML 1.1
---
vars:
  address-groups: {{HOME_NET: "[10.{id}.0.0/16]", EXTERNAL_NET: "any", HTTP_SERVERS: "$HOME_NET", SMTP_SERVERS: "$HOME_NET", SQL_SERVERS: "$HOME_NET",
    DNS_SERVERS: "$HOME_NET", TELNET_SERVERS: "$HOME_NET", AIM_SERVERS: "$EXTERNAL_NET", DC_SERVERS: "$HOME_NET", DNP3_SERVER: "$HOME_NET",
    DNP3_CLIENT: "$HOME_NET", MODBUS_CLIENT: "$HOME_NET", MODBUS_SERVER: "$HOME_NET", ENIP_CLIENT: "$HOME_NET", ENIP_SERVER: "$HOME_NET"}}
  port-groups: {{HTTP_PORTS: "80", SHELLCODE_PORTS: "!80", ORACLE_PORTS: 1521, SSH_PORTS: 22, DNP3_PORTS: 20000, MODBUS_PORTS: 502,
    FILE_DATA_PORTS: "[$HTTP_PORTS,110,143]", FTP_PORTS: 21, GENEVE_PORTS: 6081, VXLAN_PORTS: 4789, TEREDO_PORTS: 3544, SIP_PORTS: "[5060, 5061]"}}
default-rule-path: /
rule-files: [{rules}]
"""


class Commands:
    """The command socket."""

    def __init__(self, path):
        end = time.monotonic() + PATIENCE
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        while True:
            try:
                self.socket.connect(str(path))
                break
            except OSError as error:
                if time.monotonic() > end:
                    sys.exit(f"Suricata's command socket {path}: {error}")
                time.sleep(0.1)
        self.ask({"version": "0.2"})

    def ask(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        text = b""
        while True:
            piece = self.socket.recv(1 << 16)
            text += piece
            try:
                answer = json.loads(text)
                break
            except ValueError:
                if not piece:
                    sys.exit(f"Suricata answered {message} with {text!r}")
        if answer.get("return") != "OK":
            sys.exit(f"Suricata answered {message} with {answer}")


def one_more(suricata, count):
    """Of so many tenants, one after the other: seconds until it is there, and MiB that the process grows by."""
    folder = suricata.folder
    settings = (folder / "alerts.yaml").read_text()
    more = f"multi-detect:\n  enabled: yes\n  selector: vlan\n  loaders: 1\n  tenants:\n  - id: 1\n    yaml: {suricata.inside(folder)}/tenant-1.yaml\n"
    more += "  mappings:\n  - vlan-id: 1\n    tenant-id: 1\n"
    (folder / "tenants.yaml").write_text(settings + "\n" + more)
    for id in range(1, count + 2):
        (folder / f"tenant-{id}.yaml").write_text(TENANT.format(id=id, rules=suricata.inside(folder / "etopen.rules")))
    path = folder / "command.socket"
    path.unlink(missing_ok=True)
    (folder / "none.rules").write_text("")
    command = suricata.live(folder / "tenants.yaml", folder / "none.rules", "btzg1", folder / "log")
    command += ["--set", "unix-command.enabled=yes", "--set", f"unix-command.filename={suricata.inside(path)}"]
    with watched.link():
        program = watched.Suricata(command, folder)
        try:
            commands, found = Commands(path), []
            time.sleep(1)
            for id in range(2, count + 2):
                before, begun = program.memory(), time.monotonic()
                tenant = suricata.inside(folder / f"tenant-{id}.yaml")
                commands.ask({"command": "register-tenant", "arguments": {"id": id, "filename": tenant}})
                took = time.monotonic() - begun
                time.sleep(1)
                found.append((took, program.memory() - before))
            program.stop()
        finally:
            program.end()
    return found
