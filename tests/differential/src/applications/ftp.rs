// SPDX-License-Identifier: Apache-2.0
//! Conversations of FTP (RFC 959, 2428, 4217) with their data connections.

use super::conversation::{CLIENT_COMMAS, CLIENT_TEXT, FAMILY_NUMBER, SERVER_COMMAS, SERVER_TEXT, Talk};
use crate::scene::Scene;
use crate::talk::{Message, Way};
use crate::text::{data, name};
use crate::tls;
use bartizan_testkit::random::Random;

/// Conditions of rules on FTP.
pub(super) const CONDITIONS: &[&str] = &[
    "app-layer-event:ftp.request_command_too_long",
    "app-layer-event:ftp.response_command_too_long",
    "ftp.dynamic_port:>1023",
    "ftp.dynamic_port:<40000",
    "ftp.dynamic_port:5001",
    "ftp.dynamic_port:5000-5010",
    "ftp.mode:passive",
    "ftp.mode:active",
    "ftp.reply_received:yes",
    "ftp.reply_received:no",
    "ftp.reply_received:true",
    "ftpbounce",
    "ftp.command; content:\"RETR\"; bsize:4",
    "ftp.command; content:\"PORT\"",
    "ftp.command; content:\"user\"; nocase",
    "ftp.command_data; content:\"a\"",
    "ftp.command_data; bsize:0",
    "ftp.completion_code; content:\"226\"",
    "ftp.completion_code; content:\"2\"; startswith",
    "ftp.reply; content:\"Entering\"",
    "ftp.reply; content:!\"ok\"",
    "ftpdata_command:retr",
    "ftpdata_command:stor",
    "filesize:>20",
    "filesize:<40",
    "fileext:\"end\"",
    "file.name; content:\"a\"",
    "file.data; content:\"a\"",
    "frame:ftp.command; content:\"S\"",
    "frame:ftp.response; content:\"2\"; startswith",
];

/// Commands with an argument and a usual reply.
const COMMANDS: &[(&str, bool, &str)] = &[
    ("SYST", false, "215 UNIX Type: L8"),
    ("FEAT", false, "211-Features:\r\n EPRT\r\n EPSV\r\n211 End"),
    ("PWD", false, "257 \"/\" is current"),
    ("CWD", true, "250 changed"),
    ("CDUP", false, "200 up"),
    ("TYPE I", false, "200 binary"),
    ("NOOP", false, "200 ok"),
    ("SIZE", true, "213 1024"),
    ("MDTM", true, "213 20261128100000"),
    ("DELE", true, "250 deleted"),
    ("MKD", true, "257 made"),
    ("RMD", true, "550 no"),
    ("RNFR", true, "350 ready"),
    ("RNTO", true, "250 renamed"),
    ("REST", true, "350 restarting"),
    ("SITE", true, "200-one\r\n200-two\r\n200 done"),
    ("HELP", false, "214-The following\r\n USER PASS\r\n214 ok"),
    ("STAT", false, "211-status\r\n211 end"),
    ("OPTS UTF8 ON", false, "200 utf8"),
    ("PBSZ 0", false, "200 size"),
    ("PROT P", false, "200 private"),
    ("ABOR", false, "226 aborted"),
    ("XYZZY", true, "500 unknown"),
    ("ACCT", true, "202 no"),
    ("REIN", false, "220 again"),
    ("CLNT", true, "200 noted"),
    ("MLST", true, "250-Begin\r\n type=file; x\r\n250 End"),
    ("\u{7f}ABOR", false, "500 what"),
];

/// The builder of a conversation.
struct Session<'r> {
    random: &'r mut Random,
    talk: Talk,
    end: &'static str,
    /// Number of the next data connection.
    next: u16,
}

/// A conversation.
pub(super) fn scene(random: &mut Random) -> Scene {
    let end = *random.pick(&["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"]);
    let mut way = Way { port: *random.pick(&[21, 21, 21, 2121]), ..Way::default() };
    let mut session = Session { random, talk: Talk::default(), end, next: 1 };
    session.greeting();
    if session.random.percent(10) {
        session.secure();
    } else {
        session.log_in();
        for _ in 0..session.random.within(0, 4) {
            match session.random.below(5) {
                0..=2 => session.transfer(),
                3 => session.command(),
                _ => session.pipeline(),
            }
        }
        if session.random.percent(75) {
            session.say("QUIT", "221 bye");
        }
    }
    let Session { random, mut talk, .. } = session;
    if random.percent(18) {
        talk.disturb(random);
    }
    frames(&mut talk);
    if random.percent(12) {
        way.sizes = (0..6).map(|_| random.within(1, 60)).collect();
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}

fn frames(talk: &mut Talk) {
    let some: Vec<(Vec<u8>, bool)> = talk
        .messages
        .iter()
        .filter(|message| message.flow == 0)
        .map(|message| (message.data.clone(), message.to_server))
        .take(9)
        .collect();
    for (at, (line, to_server)) in some.iter().enumerate() {
        let frame = if *to_server { "frame:ftp.command" } else { "frame:ftp.response" };
        let reply = if *to_server { "ftp.command" } else { "ftp.reply" };
        let (proto, buffer) = [("ftp", frame), ("tcp", ""), ("ftp", ""), ("ftp", reply)][at % 4];
        let text = if buffer == reply { line.trim_ascii_end() } else { line.as_slice() };
        talk.target(proto, buffer, text, *to_server);
    }
    if talk.targets.is_empty() {
        talk.target("ftp", "ftp.command", b"USER", true);
    }
}

impl Session<'_> {
    fn greeting(&mut self) {
        match self.random.below(12) {
            0 => {}
            1 => self.talk.server("220-Welcome\r\n to this\r\n220 ready\r\n"),
            2 => self.talk.server("421 busy\r\n"),
            3 => self.talk.server("220 ready\n"),
            4 => self.talk.server("220-one\r\n220-two\r\n220 three\r\n"),
            _ => self.talk.server("220 FTP server ready.\r\n"),
        }
    }

    /// A command and its reply.
    fn say(&mut self, command: &str, reply: &str) {
        let command = match self.random.below(10) {
            0 => command.to_lowercase(),
            1 => format!("{command} "),
            _ => command.into(),
        };
        self.talk.client(format!("{command}{}", self.end));
        let (word, argument) = command.split_once(' ').unwrap_or((&command, ""));
        self.talk.target("ftp", "ftp.command", word, true);
        if !argument.is_empty() {
            self.talk.target("ftp", "ftp.command_data", argument, true);
        }
        match self.random.below(30) {
            0 => {}
            1 => self.reply("550 refused"),
            2 => {
                self.reply(reply);
                self.reply("200 once more");
            }
            _ => self.reply(reply),
        }
    }

    fn reply(&mut self, text: &str) {
        self.talk.server(format!("{text}\r\n"));
        self.talk.target("ftp", "ftp.reply", text.get(4..).unwrap_or_default(), false);
        self.talk.target("ftp", "ftp.completion_code", text.get(..3).unwrap_or_default(), false);
    }

    fn log_in(&mut self) {
        let (user, word) = (name(self.random, 1), name(self.random, 2));
        if self.random.percent(92) {
            self.say(&format!("USER {user}"), "331 Password required");
            let reply = if self.random.percent(80) { "230 logged in" } else { "530 Login incorrect." };
            self.say(&format!("PASS {word}"), reply);
        }
    }

    fn secure(&mut self) {
        let word = *self.random.pick(&["AUTH TLS", "AUTH TLS", "auth tls", "AUTH SSL", "AUTH TLS-C"]);
        self.talk.client(format!("{word}{}", self.end));
        self.talk.target("ftp", "ftp.command_data", &word[5..], true);
        if self.random.percent(75) {
            self.reply("234 go ahead");
            let scene = tls::scene(self.random);
            self.talk.append(scene);
        } else {
            self.reply("504 not known");
            self.log_in();
        }
    }

    fn command(&mut self) {
        let (command, has_argument, reply) = *self.random.pick(COMMANDS);
        let argument = name(self.random, 2);
        let text = match self.random.below(40) {
            0 => format!("{command} {}", "a".repeat(self.random.within(500, 530))),
            1 => format!("{command} {}", "b".repeat(self.random.within(4_080, 4_110))),
            2 => format!(" {command} {argument}"),
            3 => format!("{command}\t{argument}"),
            _ if has_argument => format!("{command} {argument}"),
            _ => command.into(),
        };
        self.say(&text, reply);
    }

    /// Several commands at once.
    fn pipeline(&mut self) {
        let (mut commands, mut replies) = (String::new(), String::new());
        for _ in 0..self.random.within(2, 4) {
            let (command, has_argument, reply) = *self.random.pick(COMMANDS);
            commands.push_str(command);
            if has_argument {
                commands.push(' ');
                commands.push_str(&name(self.random, 1));
            }
            commands.push_str(self.end);
            replies.push_str(&format!("{reply}\r\n"));
        }
        self.talk.client(commands);
        self.talk.server(replies);
    }

    /// A transfer with its data connection.
    fn transfer(&mut self) {
        let flow = self.next;
        self.next += 1;
        let (high, low) = (19, 136 + flow % 100);
        let mut port = high * 256 + low;
        let active = self.random.percent(35);
        if active {
            port = 40_000 + flow;
        }
        let announced = if self.random.percent(6) { port + 9 } else { port };
        self.announce(active, announced);
        let file = match self.random.below(20) {
            0 => format!("/pub/{}", name(self.random, 2)),
            1 => format!("{} {}.end", name(self.random, 1), name(self.random, 1)),
            2 => String::new(),
            3 => "f".repeat(300),
            _ => format!("{}.{}", name(self.random, 2), self.random.pick(&["end", "txt", "exe"])),
        };
        let word = *self.random.pick(&[
            "RETR", "RETR", "RETR", "STOR", "STOR", "LIST", "NLST", "MLSD", "APPE", "STOU", "retr", "Stor",
        ]);
        let blank = if file.is_empty() { "" } else { " " };
        let command = format!("{word}{blank}{file}");
        self.talk.client(format!("{command}{}", self.end));
        self.talk.target("ftp", "ftp.command", word, true);
        self.talk.target("ftp", "ftp.command_data", &file, true);
        self.talk.target("ftp-data", "file.name", &file, !word.eq_ignore_ascii_case("RETR"));
        if self.random.percent(10) {
            self.reply("550 no such file");
            return;
        }
        let upload = matches!(word.to_ascii_uppercase().as_str(), "STOR" | "APPE" | "STOU");
        let early = self.random.percent(30);
        if early {
            self.reply("150 opening");
        }
        self.data(flow, if active { 20 } else { port }, active, upload);
        if !early {
            self.reply("150 opening");
        }
        if self.random.percent(92) {
            self.reply("226 complete");
        }
    }

    /// The commands and replies that announce a data connection to a port.
    fn announce(&mut self, active: bool, port: u16) {
        let (high, low) = (port / 256, port % 256);
        let other = self.random.percent(8);
        match (active, self.random.percent(50)) {
            (true, true) => {
                let address = if other { "192,0,2,9" } else { CLIENT_COMMAS };
                let command = match self.random.below(12) {
                    0 => format!("PORT {address},{high}"),
                    1 => format!("PORT {address},{high},{low},1"),
                    2 => format!("PORT {address}, {high}, {low}"),
                    3 => format!("PORT {address},999,{low}"),
                    _ => format!("PORT {address},{high},{low}"),
                };
                self.say(&command, "200 PORT command successful");
            }
            (true, false) => {
                let address = if other { "192.0.2.9" } else { CLIENT_TEXT };
                let mark = *self.random.pick(&['|', '|', '|', '!']);
                let family = if self.random.percent(90) { FAMILY_NUMBER } else { "1" };
                self.say(
                    &format!("EPRT {mark}{family}{mark}{address}{mark}{port}{mark}"),
                    "200 EPRT command successful",
                );
            }
            (false, true) => {
                let address = if other { "192,0,2,9" } else { SERVER_COMMAS };
                let reply = match self.random.below(12) {
                    0 => format!("227 Entering Passive Mode {address},{high},{low}"),
                    1 => format!("227 =({address},{high},{low})"),
                    2 => format!("227 Entering Passive Mode ({address},{high})"),
                    3 => format!("227-first\r\n227 Entering Passive Mode ({address},{high},{low})"),
                    _ => format!("227 Entering Passive Mode ({address},{high},{low})."),
                };
                self.say("PASV", &reply);
            }
            (false, false) => {
                let reply = match self.random.below(12) {
                    0 => format!("229 Entering Extended Passive Mode ({FAMILY_NUMBER}{SERVER_TEXT}{port})"),
                    1 => format!("229 ok (!!!{port}!)"),
                    2 => "229 Entering Extended Passive Mode (||||)".into(),
                    3 => format!("229 Entering Extended Passive Mode (|||{port}|) and more"),
                    _ => format!("229 Entering Extended Passive Mode (|||{port}|)"),
                };
                let command = *self.random.pick(&["EPSV", "EPSV", "EPSV ALL", "EPSV 1"]);
                self.say(command, &reply);
            }
        }
    }

    fn data(&mut self, flow: u16, port: u16, active: bool, upload: bool) {
        let words = self.random.within(1, 60);
        let bytes = match self.random.below(12) {
            0 => [b"MZ\x90\0".to_vec(), data(self.random, 10)].concat(),
            1 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            2 => b"SSH-2.0-inside\r\n".to_vec(),
            _ => data(self.random, words),
        };
        self.talk.target("ftp-data", "file.data", &bytes, upload);
        self.talk.target("ftp-data", "", &bytes, upload);
        let pieces = *self.random.pick(&[1, 1, 1, 2, 3]);
        let size = bytes.len().div_ceil(pieces).max(1);
        let count = bytes.chunks(size).len();
        let closes = self.random.percent(85);
        for (at, piece) in bytes.chunks(size).enumerate() {
            let mut message = Message::new(upload, piece.to_vec());
            message.flow = flow;
            message.port = Some(port);
            message.is_active = active;
            message.closes = closes && at + 1 == count;
            self.talk.messages.push(message);
        }
    }
}
