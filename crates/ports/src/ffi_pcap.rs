// SPDX-License-Identifier: Apache-2.0
//! libpcap, found at run time: packet filters in tcpdump's language, compiled to classic BPF programs.
//!
//! Reason for `unsafe`: libpcap is a C library, and it is optional: it is loaded only when a filter is
//! configured. No code outside this module has a raw pointer of it.
//!
//! Rules that the owners keep:
//! * The library is loaded once per process and never unloaded.
//! * A handle lives in one call of [`PacketFilter::compile`] or [`PacketFilter::compile_for`], under a lock:
//!   compilers of libpcap before 1.8 have global state.
//! * A program is copied out of the library's memory, which is freed before the call returns.
//!
//! Source: `man 3pcap`, `pcap/pcap.h` and `pcap/bpf.h` of libpcap 1.x; pcap-filter(7) is the language.

use libc::sock_filter;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The names to load: Debian's, then that of other distributions.
const SONAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// The most bytes of a frame that a program passes: all.
const SNAP: c_int = 262_144;
/// The longest message, in bytes.
const ERROR_BYTES: usize = 256;
/// "No netmask is known": only `ip broadcast` would want one.
const NETMASK_UNKNOWN: u32 = 0xffff_ffff;
/// The values that a program which checks for VLAN tags compares the type of a frame with.
const TAGS: [u32; 3] = [0x8100, 0x88a8, 0x9100];
/// Jump if equal to a constant (`linux/bpf_common.h`).
const JEQ_K: u16 = 0x15;

/// `struct bpf_program`; its instructions are laid out as the kernel's.
#[repr(C)]
struct PcapProgram {
    length: c_uint,
    instructions: *mut sock_filter,
}

/// `struct pcap_pkthdr`.
#[repr(C)]
struct PacketHeader {
    time: libc::timeval,
    captured: u32,
    length: u32,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Create = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void;
type PcapStatusFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type Compile = unsafe extern "C" fn(*mut c_void, *mut PcapProgram, *const c_char, c_int, u32) -> c_int;
type PcapTextFn = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut PcapProgram);
type Close = unsafe extern "C" fn(*mut c_void);
type OfflineFilter = unsafe extern "C" fn(*const PcapProgram, *const PacketHeader, *const u8) -> c_int;

/// The functions used.
struct PcapFunctions {
    open_dead: OpenDead,
    create: Create,
    activate: PcapStatusFn,
    compile: Compile,
    error: PcapTextFn,
    free_code: FreeCode,
    close: Close,
    offline_filter: OfflineFilter,
}

/// The reason why there is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The dynamic linker does not find the library.
    #[error(
        "packet filters need libpcap, which cannot be loaded (libpcap.so.0.8 or libpcap.so.1): install it (Debian has it in libpcap0.8)"
    )]
    Missing,
    /// The library lacks a function.
    #[error("libpcap lacks the function {0}: it is too old; install libpcap 1.0 or newer")]
    Symbol(&'static str),
    /// The expression is invalid.
    #[error("the filter `{expression}` cannot be used: {message}; pcap-filter(7) has the language")]
    Wrong {
        /// The filter expression.
        expression: String,
        /// libpcap's error.
        message: String,
    },
    /// A filter with VLAN tags needs the interface, which libpcap could not open.
    #[error(
        "the filter looks at VLAN tags, for which libpcap has to open `{interface}`, and that failed: {message}"
    )]
    Interface {
        /// The name of the interface.
        interface: String,
        /// libpcap's error.
        message: String,
    },
}

fn functions() -> Result<&'static PcapFunctions, FilterError> {
    static FUNCTIONS: OnceLock<Result<PcapFunctions, FilterError>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| find(&SONAMES)).as_ref().map_err(Clone::clone)
}

fn find(names: &[&str]) -> Result<PcapFunctions, FilterError> {
    let open = |name: &&str| {
        let name = CString::new(*name).ok()?;
        // SAFETY: the name ends in NUL. The library has no constructors with effects outside of it; the
        // handle is never closed, so what is found in it stays valid.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
    };
    let handle = names.iter().find_map(open).ok_or(FilterError::Missing)?;
    let symbol = |name: &'static str| {
        let c_name = CString::new(name).map_err(|_| FilterError::Symbol(name))?;
        // SAFETY: the handle is one that dlopen returned and that is never closed; the name ends in NUL.
        let address = unsafe { libc::dlsym(handle.as_ptr(), c_name.as_ptr()) };
        NonNull::new(address).ok_or(FilterError::Symbol(name))
    };
    // SAFETY: the symbols are functions of libpcap with these C signatures (pcap/pcap.h of 1.x); a function
    // pointer and an object pointer have one size on the platforms that have dlsym.
    unsafe {
        Ok(PcapFunctions {
            open_dead: std::mem::transmute::<NonNull<c_void>, OpenDead>(symbol("pcap_open_dead")?),
            create: std::mem::transmute::<NonNull<c_void>, Create>(symbol("pcap_create")?),
            activate: std::mem::transmute::<NonNull<c_void>, PcapStatusFn>(symbol("pcap_activate")?),
            compile: std::mem::transmute::<NonNull<c_void>, Compile>(symbol("pcap_compile")?),
            error: std::mem::transmute::<NonNull<c_void>, PcapTextFn>(symbol("pcap_geterr")?),
            free_code: std::mem::transmute::<NonNull<c_void>, FreeCode>(symbol("pcap_freecode")?),
            close: std::mem::transmute::<NonNull<c_void>, Close>(symbol("pcap_close")?),
            offline_filter: std::mem::transmute::<NonNull<c_void>, OfflineFilter>(symbol(
                "pcap_offline_filter",
            )?),
        })
    }
}

/// An open handle.
struct Handle {
    functions: &'static PcapFunctions,
    raw: NonNull<c_void>,
}

impl Handle {
    /// A handle for frames of a link type (`DLT_*`), without an interface.
    fn dead(functions: &'static PcapFunctions, link_type: u32) -> Option<Self> {
        // Raw IP has another number in files, and two of them.
        let link_type = if matches!(link_type, 14 | 101) { 12 } else { link_type };
        let link_type = c_int::try_from(link_type).ok()?;
        // SAFETY: takes two numbers, gives a handle or null.
        let raw = unsafe { (functions.open_dead)(link_type, SNAP) };
        Some(Handle { functions, raw: NonNull::new(raw)? })
    }

    /// A handle for frames of an interface, as the kernel passes them.
    fn live(functions: &'static PcapFunctions, interface: &str) -> Result<Self, String> {
        let name = CString::new(interface).map_err(|_| "its name has a NUL byte".to_owned())?;
        let mut message = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends in NUL; there is room for a message of the library's largest size.
        let raw = unsafe { (functions.create)(name.as_ptr(), message.as_mut_ptr()) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: the library has ended what it wrote with NUL, and else all is zero.
            return Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned());
        };
        let handle = Handle { functions, raw };
        // SAFETY: the handle is open and was not activated before.
        if unsafe { (functions.activate)(handle.raw.as_ptr()) } < 0 {
            return Err(handle.last_error());
        }
        Ok(handle)
    }

    fn last_error(&self) -> String {
        // SAFETY: the handle is open.
        let text = unsafe { (self.functions.error)(self.raw.as_ptr()) };
        if text.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: it is text that ends in NUL and belongs to the handle; it is copied at once.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn compile(&self, expression: &CStr) -> Result<Vec<sock_filter>, String> {
        let mut program = PcapProgram { length: 0, instructions: ptr::null_mut() };
        // SAFETY: the handle is open, `program` is a place for the answer, the expression ends in NUL.
        let result = unsafe {
            (self.functions.compile)(
                self.raw.as_ptr(),
                &raw mut program,
                expression.as_ptr(),
                1,
                NETMASK_UNKNOWN,
            )
        };
        if result != 0 {
            return Err(self.last_error());
        }
        let copied = match (program.instructions.is_null(), program.length as usize) {
            (true, _) | (_, 0) => Vec::new(),
            // SAFETY: the library has written so many instructions there, of the layout of `struct bpf_insn`,
            // which is that of `sock_filter`.
            (false, length) => unsafe { std::slice::from_raw_parts(program.instructions, length) }.to_vec(),
        };
        // SAFETY: the program is one that `compile` made, freed once.
        unsafe { (self.functions.free_code)(&raw mut program) };
        Ok(copied)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and no other code has it any more.
        unsafe { (self.functions.close)(self.raw.as_ptr()) };
    }
}

/// A compiled filter.
pub struct PacketFilter {
    functions: &'static PcapFunctions,
    program: Vec<sock_filter>,
}

impl core::fmt::Debug for PacketFilter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PacketFilter of {} instructions", self.program.len())
    }
}

static COMPILER: Mutex<()> = Mutex::new(());

impl PacketFilter {
    /// Compiles an expression for whole frames of a link type (`LINKTYPE_*`), with VLAN tags in their place
    /// on the wire.
    ///
    /// # Errors
    /// libpcap is missing, or does not accept the expression.
    pub fn compile(expression: &str, link_type: u32) -> Result<Self, FilterError> {
        let functions = functions()?;
        let _one = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = |message: String| FilterError::Wrong { expression: expression.to_owned(), message };
        let text = CString::new(expression).map_err(|_| wrong("it has a NUL byte".to_owned()))?;
        let handle = Handle::dead(functions, link_type)
            .ok_or_else(|| wrong(format!("libpcap has no link type {link_type}")))?;
        let program = handle.compile(&text).map_err(wrong)?;
        Ok(PacketFilter { functions, program })
    }

    /// Compiles an expression for the frames of an Ethernet interface as a packet socket's filter sees them:
    /// without the outermost VLAN tag, which the kernel passes separately. An expression without tags needs
    /// no interface.
    ///
    /// # Errors
    /// libpcap is missing, does not accept the expression, or cannot open the interface.
    pub fn compile_for(expression: &str, interface: &str) -> Result<Self, FilterError> {
        const ETHERNET: u32 = 1;
        let filter = Self::compile(expression, ETHERNET)?;
        if !filter.inspects_tags() {
            return Ok(filter);
        }
        let _one = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |message| FilterError::Interface { interface: interface.to_owned(), message };
        let handle = Handle::live(filter.functions, interface).map_err(failed)?;
        let text = CString::new(expression).unwrap_or_default();
        let program = handle
            .compile(&text)
            .map_err(|message| FilterError::Wrong { expression: expression.to_owned(), message })?;
        Ok(PacketFilter { functions: filter.functions, program })
    }

    fn inspects_tags(&self) -> bool {
        self.program.iter().any(|step| step.code == JEQ_K && TAGS.contains(&step.k))
    }

    /// Whether the filter passes a frame with the captured `bytes`.
    #[must_use]
    pub fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        // An empty expression.
        let Ok(length) = c_uint::try_from(self.program.len()) else { return false };
        if length == 0 {
            return true;
        }
        let program = PcapProgram { length, instructions: self.program.as_ptr().cast_mut() };
        let header = PacketHeader {
            time: libc::timeval { tv_sec: 0, tv_usec: 0 },
            captured: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            length: wire_len,
        };
        // SAFETY: the program is one that libpcap made, and so one that ends; the header describes the bytes,
        // all live through the call, and the function only reads.
        unsafe { (self.functions.offline_filter)(&raw const program, &raw const header, bytes.as_ptr()) != 0 }
    }

    /// The program, for the kernel.
    pub(crate) fn program(&self) -> &[sock_filter] {
        &self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether libpcap is present; if not, prints that the test is skipped.
    fn is_there() -> bool {
        let there = functions().is_ok();
        if !there {
            eprintln!("needs libpcap: not run (apt-get install libpcap0.8)");
        }
        there
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let error = find(&["libpcap.so.none"]).err().expect("there is none").to_string();
        assert!(error.contains("install it") && error.contains("libpcap0.8"), "{error}");
        assert!(matches!(find(&["libc.so.6"]).err(), Some(FilterError::Symbol("pcap_open_dead"))));
    }

    #[test]
    fn expressions_are_tcpdumps() {
        if !is_there() {
            return;
        }
        let host = |number| bartizan_testkit::packet::address(false, number);
        let udp = |port| bartizan_testkit::packet::udp((host(1), 1000), (host(2), port), b"").frame();
        let to = host(2);
        let mut tagged = udp(22);
        tagged.splice(12..12, [0x81, 0, 0, 10]);
        for (expression, matching) in [
            ("", [true, true, true]),
            ("port 22", [true, false, false]),
            ("not port 22", [false, true, true]),
            ("vlan 10 and port 22", [false, false, true]),
            (&format!("host {to} and greater 10"), [true, true, false]),
        ] {
            let filter = PacketFilter::compile(expression, 1).expect(expression);
            let frames = [udp(22), udp(23), tagged.clone()];
            let got = frames.each_ref().map(|frame| filter.matches(frame, frame.len() as u32));
            assert_eq!(got, matching, "{expression}");
            // No byte of an empty frame is read.
            assert_eq!(filter.matches(&[], 0), expression.is_empty(), "{expression}");
            assert_eq!(filter.inspects_tags(), expression.contains("vlan"), "{expression}");
        }
        for expression in ["porrt 22", "port", "host 1.2.3.4.5 and", "a\0b"] {
            let error = PacketFilter::compile(expression, 1).expect_err(expression).to_string();
            assert!(error.contains(&format!("`{expression}` cannot be used: ")), "{error}");
        }
    }
}
