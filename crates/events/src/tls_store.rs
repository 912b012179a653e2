// SPDX-License-Identifier: Apache-2.0
//! Stores certificates of the traffic on disk, as Suricata's output `tls-store` does: `SEC.USEC-N.pem` with
//! the chain of a server, `client-SEC.USEC-N.pem` with that of a client, and beside each a `.meta` with its
//! origin. Source: Suricata 8's user guide, keyword `tls.store`, and the files of Suricata 8.0.8.
//!
//! A thread writes. Workers pass certificates to it by a bounded queue; if the queue is full, a worker either
//! waits (captures) or gives them up and counts them (live). Names consist of numbers alone, and text of
//! certificates is made harmless: where Suricata ends a name at a NUL byte, this shows it. Times are UTC.

use crate::file_store::WhenBehind;
use crate::harmless::harmless_line;
use crate::json::base64_into;
use crate::output::Rights;
use crate::record::Tuple;
use crate::text::{push_address, push_date_time};
use bartizan_base::turns::wait_for_turn;
use bartizan_base::{SettingError, SettingsMap, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Length of the writer's queue, in chains. The parser accepts chains of up to 256 KiB, so at most 16 MiB are
/// queued.
pub(crate) const QUEUE: usize = 64;
/// Characters of a line in PEM (RFC 7468 section 2).
const LINE: usize = 64;

/// Settings of the output `tls-store`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsStoreOptions {
    /// Folder below the output folder, or absolute; `None`: the output folder itself.
    pub dir: Option<PathBuf>,
    /// Access rights of the files.
    pub rights: Rights,
}

impl TlsStoreOptions {
    /// Reads the first enabled `tls-store` output; `None` without one.
    ///
    /// # Errors
    /// A value has the wrong type for its key.
    pub fn from_settings(settings: &SettingsMap) -> Result<Option<Self>, SettingError> {
        for item in settings.children("outputs") {
            let prefix = format!("outputs.{item}.tls-store");
            if !settings.has(&prefix) || !settings.bool(&format!("{prefix}.enabled"), false)? {
                continue;
            }
            let dir = settings.get(&format!("{prefix}.certs-log-dir")).filter(|dir| !dir.is_empty());
            return Ok(Some(TlsStoreOptions {
                dir: dir.map(PathBuf::from),
                rights: Rights::from_settings(settings)?,
            }));
        }
        Ok(None)
    }

    /// The store's folder. `folder`: the output folder.
    #[must_use]
    pub fn place(&self, folder: &Path) -> PathBuf {
        self.dir.as_ref().map_or_else(|| folder.to_owned(), |dir| folder.join(dir))
    }
}

/// Counters of the store.
#[derive(Debug, Default)]
pub struct TlsStoreCounters {
    /// Chains written, with their description.
    pub stored: AtomicU64,
    /// Failures of the file system: the chain or its description is missing.
    pub fs_errors: AtomicU64,
    /// Chains given up because the queue was full.
    pub lost: AtomicU64,
}

impl TlsStoreCounters {
    /// Calls `each` for every counter with its name in EVE's `stats`.
    pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        for (name, counter) in [
            ("tls_store.stored", &self.stored),
            ("tls_store.fs_errors", &self.fs_errors),
            ("tls_store.lost", &self.lost),
        ] {
            each(name, counter.load(Ordering::Relaxed));
        }
    }
}

/// The certificates of one side, and their origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChain {
    /// The certificates are the client's.
    pub of_client: bool,
    /// Time by the packet clock.
    pub at: Timestamp,
    /// Number of the packet in its capture, from 1; `None` live.
    pub packet: Option<u64>,
    /// Tuple from client to server.
    pub tuple: Tuple,
    /// Subject of the first certificate, as Suricata writes names.
    pub subject: String,
    /// Issuer of the first certificate.
    pub issuer: String,
    /// SHA-1 of the first certificate: `0a:ff:...`
    pub fingerprint: String,
    /// The certificates in DER, the side's own first.
    pub chain: Vec<Vec<u8>>,
}

impl StoredChain {
    /// File name without its ending. `number`: counts the chains for the store, from 1.
    fn name(&self, number: u32) -> String {
        let whose = if self.of_client { "client-" } else { "" };
        // Suricata does not pad the microseconds.
        format!("{whose}{}.{}-{number}", self.at.as_secs(), self.at.as_micros() % 1_000_000)
    }

    fn pem(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut text = Vec::new();
        for der in &self.chain {
            text.clear();
            base64_into(&mut text, der);
            out.extend_from_slice(b"-----BEGIN CERTIFICATE-----\n");
            for line in text.chunks(LINE) {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            out.extend_from_slice(b"-----END CERTIFICATE-----\n");
        }
        out
    }

    fn meta(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut line = |name: &str, write: &dyn Fn(&mut Vec<u8>)| {
            out.extend_from_slice(format!("{:<19}", format!("{name}:")).as_bytes());
            write(&mut out);
            out.push(b'\n');
        };
        let text = |text: &str| {
            let text = harmless_line(text).into_owned();
            move |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes())
        };
        line("TIME", &|out| push_date_time(out, self.at));
        if let Some(number) = self.packet {
            line("PCAP PKT NUM", &text(&number.to_string()));
        }
        line("SRC IP", &|out| push_address(out, self.tuple.src));
        line("DST IP", &|out| push_address(out, self.tuple.dest));
        line("PROTO", &text(&self.tuple.proto.to_string()));
        if let Some((from, to)) = self.tuple.ports {
            line("SRC PORT", &text(&from.to_string()));
            line("DST PORT", &text(&to.to_string()));
        }
        line("TLS SUBJECT", &text(&self.subject));
        line("TLS ISSUERDN", &text(&self.issuer));
        line("TLS FINGERPRINT", &text(&self.fingerprint));
        out
    }
}

enum TlsStoreMessage {
    Store(u32, Box<StoredChain>),
    Finish,
}

/// A worker's connection to the store.
#[derive(Clone)]
pub struct TlsStoreHandle {
    sender: SyncSender<TlsStoreMessage>,
    next: Arc<AtomicU32>,
    counters: Arc<TlsStoreCounters>,
    behind: WhenBehind,
}

impl TlsStoreHandle {
    /// Passes a chain to the writer, under the next number: over captures in the order of the packets. Chains
    /// that are given up are counted.
    pub fn store(&self, chain: StoredChain) {
        wait_for_turn();
        let message = TlsStoreMessage::Store(self.next.fetch_add(1, Ordering::Relaxed), Box::new(chain));
        let sent = match self.behind {
            WhenBehind::Wait => self.sender.send(message).is_ok(),
            WhenBehind::GiveUp => self.sender.try_send(message).is_ok(),
        };
        if !sent {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the worker wait for the writer from now on: at the end of a run no traffic is delayed.
    pub const fn wait_for_writer(&mut self) {
        self.behind = WhenBehind::Wait;
    }

    /// Counters of the store, which outlive the handle.
    #[must_use]
    pub fn shared_counters(&self) -> Arc<TlsStoreCounters> {
        Arc::clone(&self.counters)
    }
}

/// The store: a folder and the thread that writes into it.
pub struct TlsStore {
    handle: Option<TlsStoreHandle>,
    counters: Arc<TlsStoreCounters>,
    writer: Option<JoinHandle<Option<String>>>,
}

impl TlsStore {
    /// Makes the folder and starts the writer. A relative `dir` lies below `folder`.
    ///
    /// # Errors
    /// The folder cannot be made, or the thread not started.
    pub fn start(options: &TlsStoreOptions, folder: &Path, behind: WhenBehind) -> std::io::Result<Self> {
        let dir = options.place(folder);
        options.rights.make_folder(&dir)?;
        let counters = Arc::new(TlsStoreCounters::default());
        let (sender, receiver) = sync_channel(QUEUE);
        let writer = TlsStoreWriter { dir, rights: options.rights, counters: Arc::clone(&counters) };
        let thread = std::thread::Builder::new().name("tls-store".to_owned());
        let thread = thread.spawn(move || writer.run(&receiver))?;
        let next = Arc::new(AtomicU32::new(1));
        let handle = TlsStoreHandle { sender, next, counters: Arc::clone(&counters), behind };
        Ok(TlsStore { handle: Some(handle), counters, writer: Some(thread) })
    }

    /// A connection to the store, for a worker.
    #[must_use]
    pub fn handle(&self) -> Option<TlsStoreHandle> {
        self.handle.clone()
    }

    /// Waits until all chains so far are written; later ones are lost. Returns the first problem, if there
    /// was one.
    pub fn finish(&mut self) -> Option<String> {
        if let Some(handle) = self.handle.take() {
            // Fails only if the writer has ended, which joining it reports.
            let _ = handle.sender.send(TlsStoreMessage::Finish);
        }
        self.writer
            .take()?
            .join()
            .unwrap_or_else(|_| Some("the writer of certificates ended by a defect".to_owned()))
    }

    /// Counters of the store.
    #[must_use]
    pub fn counters(&self) -> &TlsStoreCounters {
        &self.counters
    }
}

struct TlsStoreWriter {
    dir: PathBuf,
    rights: Rights,
    counters: Arc<TlsStoreCounters>,
}

impl TlsStoreWriter {
    fn run(&self, receiver: &Receiver<TlsStoreMessage>) -> Option<String> {
        let mut problem = None;
        while let Ok(TlsStoreMessage::Store(number, chain)) = receiver.recv() {
            match self.write(number, &chain) {
                Ok(()) => _ = self.counters.stored.fetch_add(1, Ordering::Relaxed),
                Err((name, error)) => {
                    self.counters.fs_errors.fetch_add(1, Ordering::Relaxed);
                    let path = self.dir.join(name);
                    problem.get_or_insert_with(|| {
                        format!("a certificate is not stored in {}: {error}", path.display())
                    });
                }
            }
        }
        problem
    }

    /// Writes a chain. Existing files of these names are replaced, as in Suricata; a link is not followed.
    fn write(&self, number: u32, chain: &StoredChain) -> Result<(), (String, std::io::Error)> {
        let name = chain.name(number);
        for (ending, content) in [("pem", chain.pem()), ("meta", chain.meta())] {
            let name = format!("{name}.{ending}");
            self.rights.write(&self.dir.join(&name), &content).map_err(|error| (name, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::turns::CaptureTurns;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bartizan-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn chain(of_client: bool, ipv6: bool) -> StoredChain {
        let (src, dest) = if ipv6 { ("2001:db8::1", "2001:db8::2") } else { ("10.0.0.1", "192.0.2.7") };
        StoredChain {
            of_client,
            at: Timestamp::from_parts(1_539_163_471, 42_000),
            packet: (!of_client).then_some(7),
            tuple: Tuple {
                src: src.parse().unwrap(),
                dest: dest.parse().unwrap(),
                ports: Some((4_000, 443)),
                proto: 6,
            },
            subject: "CN=a\0\u{1b}[31m\nTLS ISSUERDN: b".to_owned(),
            issuer: "C=DE, CN=größe".to_owned(),
            fingerprint: "0a:ff".to_owned(),
            // Lines of 64 characters: full ones, and one that is not.
            chain: vec![vec![0; 48], vec![0xff; 49]],
        }
    }

    #[test]
    fn files_are_those_of_suricata() {
        let folder = folder("tls-store");
        let options = TlsStoreOptions { dir: Some("certs".into()), ..TlsStoreOptions::default() };
        let mut store = TlsStore::start(&options, &folder, WhenBehind::Wait).unwrap();
        let handle = store.handle().unwrap();
        handle.store(chain(false, false));
        handle.store(chain(true, true));
        assert_eq!(store.finish(), None);
        let read = |name: &str| std::fs::read_to_string(folder.join("certs").join(name)).unwrap();
        let pem = read("1539163471.42-1.pem");
        let (begin, end) = ("-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n");
        let (zeros, ones) = ("A".repeat(64), "/".repeat(64));
        assert_eq!(pem, format!("{begin}{zeros}\n{end}{begin}{ones}\n/w==\n{end}"));
        assert_eq!(read("client-1539163471.42-2.pem"), pem);
        let rest = r"PROTO:             6
SRC PORT:          4000
DST PORT:          443
TLS SUBJECT:       CN=a\u0000\u001b[31m\u000aTLS ISSUERDN: b
TLS ISSUERDN:      C=DE, CN=größe
TLS FINGERPRINT:   0a:ff
";
        let time = "TIME:              10/10/2018-09:24:31.000042\n";
        assert_eq!(
            read("1539163471.42-1.meta"),
            format!(
                "{time}PCAP PKT NUM:      7\nSRC IP:            10.0.0.1\nDST IP:            192.0.2.7\n{rest}"
            )
        );
        let (src, dest) =
            ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:0db8:0000:0000:0000:0000:0000:0002");
        assert_eq!(
            read("client-1539163471.42-2.meta"),
            format!("{time}SRC IP:            {src}\nDST IP:            {dest}\n{rest}")
        );
        for entry in std::fs::read_dir(folder.join("certs")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        }
        let mut counted = Vec::new();
        store.counters().for_each(|name, value| counted.push((name, value)));
        assert_eq!(counted, [("tls_store.stored", 2), ("tls_store.fs_errors", 0), ("tls_store.lost", 0)]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_are_not_followed_and_files_give_way() {
        let folder = folder("tls-store-links");
        let precious = folder.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        symlink(&precious, folder.join("1539163471.42-1.pem")).unwrap();
        symlink(&precious, folder.join("1539163471.42-2.meta")).unwrap();
        std::fs::write(folder.join("1539163471.42-3.meta"), "x".repeat(4_000)).unwrap();
        let mut store = TlsStore::start(&TlsStoreOptions::default(), &folder, WhenBehind::Wait).unwrap();
        let handle = store.handle().unwrap();
        (0..3).for_each(|_| handle.store(chain(false, false)));
        let said = store.finish().unwrap();
        assert!(said.contains("1539163471.42-1.pem: it is a symbolic link"), "{said}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
        assert!(std::fs::metadata(folder.join("1539163471.42-3.meta")).unwrap().len() < 1_000);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = store.counters();
        assert_eq!((count(&counters.stored), count(&counters.fs_errors), count(&counters.lost)), (1, 2, 0));
        // Chains after the end are lost, and counted.
        handle.store(chain(false, false));
        assert_eq!(count(&counters.lost), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn numbers_are_drawn_in_the_order_of_the_packets() {
        let ((sender, receiver), turns) = (sync_channel(4), CaptureTurns::new(2));
        let (next, counters) = (Arc::new(AtomicU32::new(1)), Arc::default());
        let handle = TlsStoreHandle { sender, next, counters, behind: WhenBehind::Wait };
        let (behind, ahead) = (turns.take_part(0), AtomicU64::new(0));
        behind.at(1, 0);
        std::thread::scope(|scope| {
            let (turns, ahead, handle) = (&turns, &ahead, &handle);
            scope.spawn(move || {
                let turn = turns.take_part(1);
                turn.at(9, 0);
                ahead.store(1, Ordering::Release);
                handle.store(chain(true, false));
            });
            while ahead.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            // Time for the event that must not happen.
            std::thread::sleep(std::time::Duration::from_millis(20));
            handle.store(chain(false, false));
            drop(behind);
        });
        let stored: Vec<(u32, bool)> = receiver
            .try_iter()
            .filter_map(|message| match message {
                TlsStoreMessage::Store(number, chain) => Some((number, chain.of_client)),
                TlsStoreMessage::Finish => None,
            })
            .collect();
        assert_eq!(stored, [(1, false), (2, true)], "frame 1, then frame 9");
    }

    #[test]
    fn who_is_not_waited_for_is_counted() {
        let (sender, receiver) = sync_channel(1);
        let counters = Arc::new(TlsStoreCounters::default());
        let next = Arc::new(AtomicU32::new(1));
        let behind = WhenBehind::GiveUp;
        let handle = TlsStoreHandle { sender, next, counters: Arc::clone(&counters), behind };
        (0..3).for_each(|_| handle.store(chain(false, false)));
        assert_eq!(counters.lost.load(Ordering::Relaxed), 2);
        assert!(matches!(receiver.try_recv(), Ok(TlsStoreMessage::Store(1, _))));
    }

    #[test]
    fn settings() {
        let mut settings = SettingsMap::new();
        assert_eq!(TlsStoreOptions::from_settings(&settings), Ok(None));
        settings.set("outputs.0.tls-store.certs-log-dir", "certs");
        assert_eq!(TlsStoreOptions::from_settings(&settings), Ok(None));
        settings.set("outputs.0.tls-store.enabled", "yes");
        let read = TlsStoreOptions::from_settings(&settings).unwrap().unwrap();
        assert_eq!(read.place(Path::new("/out")), Path::new("/out/certs"));
        settings.set("outputs.0.tls-store.certs-log-dir", "/var/certs");
        let read = TlsStoreOptions::from_settings(&settings).unwrap().unwrap();
        assert_eq!(read.place(Path::new("/out")), Path::new("/var/certs"));
        assert_eq!(TlsStoreOptions::default().place(Path::new("/out")), Path::new("/out"));
        settings.set("outputs.0.tls-store.enabled", "maybe");
        assert!(TlsStoreOptions::from_settings(&settings).is_err());
    }
}
