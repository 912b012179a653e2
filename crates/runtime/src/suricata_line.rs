// SPDX-License-Identifier: Apache-2.0
//! Command lines of Suricata, and the equivalent command: `suricata -r x.pcap -S my.rules -l log` is
//! `bartizan inspect --rules my.rules --out log x.pcap`. The result is a hint, which is not run: a user who
//! types an option of another program should learn which program this is.

use bartizan_config::suricata;
use std::fmt::Write as _;
use std::path::Path;

/// The requests of a line of Suricata.
#[derive(Debug, Default)]
struct SuricataCommandLine {
    /// Options that both of our commands have, in our form.
    options: Vec<String>,
    config: Option<String>,
    captures: Vec<String>,
    interfaces: Vec<String>,
    /// Live, with the interfaces in the settings.
    named_in_settings: bool,
    /// Drops are enforced in captures, too.
    ips: bool,
    pid_file: Option<String>,
    /// A packet filter in tcpdump's language.
    filter: Option<String>,
    /// Words at the end that are no options: a filter.
    words: Vec<String>,
    /// Advice on options without a counterpart.
    notes: Vec<String>,
    /// Whether an option that only Suricata has occurred in this place.
    is_suricatas: bool,
    /// Whether an option occurred that both programs have, such as `-T`.
    is_asked: bool,
}

/// Options that are followed by a value.
const WITH_VALUE: [&str; 19] = [
    "-c",
    "-r",
    "-i",
    "-S",
    "-s",
    "-l",
    "-F",
    "-k",
    "-q",
    "-d",
    "--pidfile",
    "--runmode",
    "--user",
    "--group",
    "--set",
    "--include",
    "--data-dir",
    "--firewall-rules-exclusive",
    "--pcap-buffer-size",
];

impl SuricataCommandLine {
    fn read(arguments: &[String]) -> SuricataCommandLine {
        let mut line = SuricataCommandLine::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, given) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            // `-ieth0`, as getopt accepts it.
            let (name, given) = match name.get(..2) {
                Some(short) if name.len() > 2 && !name.starts_with("--") && WITH_VALUE.contains(&short) => {
                    (short, name.get(2..).map(str::to_owned))
                }
                _ => (name, given),
            };
            let value =
                if given.is_none() && WITH_VALUE.contains(&name) { rest.next().cloned() } else { given };
            line.take(name, value);
        }
        line
    }

    fn take(&mut self, name: &str, value: Option<String>) {
        let word = value.clone().unwrap_or_default();
        let mut is_suricatas = true;
        match name {
            "-c" => {
                self.config = value;
                is_suricatas = false;
            }
            "--set" => {
                self.options.extend(["--set".to_owned(), word]);
                is_suricatas = false;
            }
            "-r" => self.captures.push(word),
            "-i" | "--pcap" | "--af-packet" => match value {
                Some(interface) => self.interfaces.push(interface),
                None => self.named_in_settings = true,
            },
            "-S" | "-s" => {
                self.options.extend(["--rules".to_owned(), word]);
                if name == "-s" {
                    self.notes.push("-s: --rules replaces the `rule-files` of the settings; name those files with --rules as well".to_owned());
                }
            }
            "-l" => self.options.extend(["--out".to_owned(), word]),
            "-k" => {
                let mode = if word == "none" { "none" } else { "yes" };
                self.options.extend(["--set".to_owned(), format!("capture.checksum-validation={mode}")]);
            }
            "--pidfile" => self.pid_file = value,
            "--simulate-ips" => self.ips = true,
            "--firewall" => self.options.push("--firewall".to_owned()),
            "--firewall-rules-exclusive" => self.options.extend(["--firewall-rules-exclusive".to_owned(), word]),
            "-D" => self.notes.push(
                "-D: the program stays in the foreground; run it by a service manager (systemd: `Type=exec`) or with `&`; --pidfile writes its process id"
                    .to_owned(),
            ),
            "--list-runmodes" | "--runmode" => self.notes.push(format!(
                "{name}: there are no run modes: `bartizan run --workers N` distributes live traffic, `bartizan inspect --threads N` captures; each flow stays at one worker"
            )),
            "--user" | "--group" => self.notes.push(format!(
                "{name}: start it as that user, with the capabilities cap_net_raw and cap_net_admin (systemd: `User=`, `AmbientCapabilities=`)"
            )),
            "-F" => self.filter = std::fs::read_to_string(&word).ok().map(|text| text.trim().to_owned()).or(Some(format!("EXPRESSION OF {word}"))),
            "-q" | "-d" | "--netmap" | "--dpdk" | "--af-xdp" | "--nflog" | "--ipfw" | "--pfring" | "--pfring-int" | "--erf-in"
            | "--dag" | "--napatech" | "--windivert" => self.notes.push(format!(
                "{name}: live packets are received by AF_PACKET only: `--tap INTERFACE` detects, `--inline A B` prevents"
            )),
            "--unix-socket" => self.notes.push("--unix-socket: captures cannot be submitted by a socket: `bartizan inspect CAPTURE...` reads them; a running program accepts commands on its socket (`--control`, docs/control.md)".to_owned()),
            "--include" => self.notes.push("--include: name the file by `include:` in the suricata.yaml".to_owned()),
            "--data-dir" => self.options.extend(["--set".to_owned(), format!("default-data-dir={word}")]),
            "--engine-analysis" => self.notes.push("--engine-analysis: use `bartizan check` and `bartizan explain rule SID --rules FILE`".to_owned()),
            "--disable-detection" => self.notes.push("--disable-detection: run without rules".to_owned()),
            "--pcap-buffer-size" | "--disable-hashing" | "--pcap-file-continuous" | "--pcap-file-recursive" | "--pcap-file-delete"
            | "--pcap-file-buffer-size" | "--strict-rule-keywords" | "--reject-dev" | "--no-random" | "--list-rule-protos" => {
                self.notes.push(format!("{name}: this option has no counterpart; remove it"));
            }
            "-T" | "-V" | "--build-info" | "--dump-config" | "--list-keywords" | "--list-app-layer-protos" | "--list-app-layer-hooks" => {
                self.is_asked = true;
                is_suricatas = false;
            }
            word => {
                is_suricatas = false;
                if !word.starts_with('-') {
                    self.words.push(word.to_owned());
                }
            }
        }
        self.is_suricatas |= is_suricatas;
    }

    /// The equivalent command.
    fn command(&self) -> Option<String> {
        let mut words = Vec::new();
        let is_live = !self.interfaces.is_empty() || self.named_in_settings || self.captures.is_empty();
        if self.is_asked {
            return None;
        }
        words.push(if is_live { "bartizan run" } else { "bartizan inspect" }.to_owned());
        if let Some(config) = &self.config {
            words.extend(["--suricata-config".to_owned(), quoted(config)]);
        }
        words.extend(self.options.iter().map(|option| quoted(option)));
        if is_live {
            words.extend(self.pid_file.iter().flat_map(|file| ["--pidfile".to_owned(), quoted(file)]));
            let (ports, of_settings) = self.ports();
            // Inline has no filter, which a note explains.
            let filter =
                self.filter().or(of_settings).filter(|_| ports.first().is_some_and(|p| p == "--tap"));
            words.extend(ports);
            words.extend(filter.iter().flat_map(|filter| ["--filter".to_owned(), quoted(filter)]));
        } else {
            words.extend(self.ips.then(|| "--ips".to_owned()));
            words.extend(self.filter().iter().flat_map(|filter| ["--filter".to_owned(), quoted(filter)]));
            words.extend(self.captures.iter().map(|capture| quoted(capture)));
        }
        Some(words.join(" "))
    }

    /// The packet filter that the line has.
    fn filter(&self) -> Option<String> {
        let words = Some(self.words.join(" ")).filter(|words| !words.is_empty());
        self.filter.clone().or(words)
    }

    /// Whether a packet filter is requested inline, which has none.
    fn has_filter_inline(&self) -> bool {
        let (ports, of_settings) = self.ports();
        let is_inline = self.captures.is_empty() && ports.first().is_some_and(|port| port == "--inline");
        is_inline && self.filter().or(of_settings).is_some()
    }

    /// The ports of the line, else of the settings, with the packet filter of the settings.
    fn ports(&self) -> (Vec<String>, Option<String>) {
        let named = || self.config.as_deref().and_then(|path| suricata::load(Path::new(path)).ok());
        let (mut pair, mut filter) = (None, None);
        let interface = self.interfaces.first().cloned().or_else(|| {
            let settings = named()?;
            let items: Vec<String> = settings.children("af-packet").map(str::to_owned).collect();
            let of = |item: &String, key: &str| {
                settings.get(&format!("af-packet.{item}.{key}")).map(str::to_owned)
            };
            let real = |item: &&String| of(item, "interface").is_some_and(|name| name != "default");
            let first = items.iter().find(real)?;
            if of(first, "copy-mode").as_deref() == Some("ips") {
                pair = of(first, "interface").zip(of(first, "copy-iface"));
            }
            filter = of(first, "bpf-filter").filter(|filter| !filter.is_empty());
            of(first, "interface")
        });
        let ports = match (pair, interface) {
            (Some((a, b)), _) => vec!["--inline".to_owned(), quoted(&a), quoted(&b)],
            (None, Some(interface)) => vec!["--tap".to_owned(), quoted(&interface)],
            (None, None) => vec!["--tap".to_owned(), "INTERFACE".to_owned()],
        };
        (ports, filter)
    }
}

/// A word, quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.contains('[') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A hint with the equivalent command; `None`: the line has no option of Suricata alone. `arguments`: without
/// the program's name.
pub fn hint(arguments: &[String]) -> Option<String> {
    let (line, command) = match arguments.split_first() {
        Some((first, rest)) if matches!(first.as_str(), "run" | "inspect") => {
            let mut line = SuricataCommandLine::read(rest);
            // For `run` and `inspect`, `-c` is the host file.
            line.config = None;
            (line, Some(first.as_str()))
        }
        Some((first, _)) if first.starts_with('-') => (SuricataCommandLine::read(arguments), None),
        _ => return None,
    };
    if !line.is_suricatas {
        return None;
    }
    let mut text = match command {
        Some(name) => format!(
            "`bartizan {name}` has options of its own (see `bartizan {name} --help`); these are Suricata's"
        ),
        None => "these are options of Suricata".to_owned(),
    };
    let asks = !line.captures.is_empty()
        || !line.interfaces.is_empty()
        || line.named_in_settings
        || line.config.is_some()
        || !line.options.is_empty();
    if let Some(command) = line.command().filter(|_| asks) {
        let _ = write!(text, "; the equivalent command is\n  {command}");
    }
    if !line.interfaces.is_empty() || line.named_in_settings {
        text.push_str(
            "\n  --tap watches one interface; --inline A B forwards between two interfaces and applies `drop` rules",
        );
    }
    if line.interfaces.len() > 1 {
        text.push_str("\n  several interfaces are links of a host file, each with a name: `links: [{name: a, tap: {interface: eth0}}, ...]`, and `bartizan run -c FILE` (docs/running.md)");
    }
    if line.has_filter_inline() {
        text.push_str("\n  inline links have no capture filter: exempt traffic from inspection by a policy with `chain: []` (--policy)");
    }
    for note in &line.notes {
        let _ = write!(text, "\n  {note}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        hint(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lines_of_suricata_have_an_equivalent() {
        for (line, command) in [
            ("-r x.pcap", "bartizan inspect x.pcap"),
            (
                "-c s.yaml -r x.pcap -S my.rules -l log -k none",
                "bartizan inspect --suricata-config s.yaml --rules my.rules --out log --set capture.checksum-validation=none x.pcap",
            ),
            (
                "-rx.pcap --simulate-ips --set vars.address-groups.HOME_NET=[10.0.0.0/8]",
                "bartizan inspect --set 'vars.address-groups.HOME_NET=[10.0.0.0/8]' --ips x.pcap",
            ),
            ("-i eth0", "bartizan run --tap eth0"),
            ("-c /no/s.yaml -D --af-packet", "bartizan run --suricata-config /no/s.yaml --tap INTERFACE"),
            (
                "--af-packet=eth1 --pidfile /run/s.pid -S a.rules",
                "bartizan run --rules a.rules --pidfile /run/s.pid --tap eth1",
            ),
            ("-i eth0 -l log not port 22", "bartizan run --out log --tap eth0 --filter 'not port 22'"),
            ("-r x.pcap udp", "bartizan inspect --filter udp x.pcap"),
            ("-i eth0 -F /no/such", "bartizan run --tap eth0 --filter 'EXPRESSION OF /no/such'"),
            ("--pcap=eth1 -v -l log", "bartizan run --out log --tap eth1"),
            ("-S a.rules -l log", "bartizan run --rules a.rules --out log --tap INTERFACE"),
        ] {
            let said = of(line).unwrap_or_else(|| panic!("{line}"));
            assert!(said.lines().nth(1).is_some_and(|l| l.trim() == command), "{line}: {said}");
        }
        for (line, part) in [
            ("-D", "stays in the foreground"),
            ("--list-runmodes", "there are no run modes"),
            ("-q 0", "AF_PACKET only"),
            ("-c s.yaml -i eth0 -i eth1", "several interfaces are links of a host file"),
            ("--user suri -i eth0", "cap_net_raw"),
            ("--unix-socket", "captures cannot be submitted by a socket"),
            ("run -i eth0", "bartizan run --tap eth0"),
            ("inspect -r x.pcap -l log", "bartizan inspect --out log x.pcap"),
            ("run -c h.yaml -D", "stays in the foreground"),
        ] {
            let said = of(line).unwrap_or_else(|| panic!("{line}"));
            assert!(said.contains(part), "{line}: {said}");
        }
        assert!(of("-D").unwrap().lines().count() == 2);
        for line in ["", "inspekt x.pcap", "run --tapp eth0", "check -r", "--strict", "explain rule 1"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
