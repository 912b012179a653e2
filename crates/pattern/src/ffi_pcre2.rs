// SPDX-License-Identifier: Apache-2.0
//! PCRE2 (8-bit): owners of compiled code and of match data around the functions of `pcre2.h`.
//!
//! Why unsafe: PCRE2 is a C library. Nothing outside this module sees a raw pointer of it.
//!
//! Rules that the owners keep:
//! * Compiled code is written to only while it is made and by [`Code::jit_compile`], which needs `&self`
//!   because it happens at first use; the caller ([`crate::Regex`]) sees to it that it runs at most once and
//!   before every match (a `OnceLock`).
//! * A [`MatchState`] (match data, match context, JIT stack) belongs to one thread (`&mut`).
//!
//! Source: pcre2api(3), pcre2jit(3) of PCRE2 10.42 to 10.46.

use crate::regex::Limits;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use pcre2_sys as sys;

/// Initial size of a JIT stack, in bytes; it grows up to `JIT_STACK_MAX` and is reserved once per scratch.
const JIT_STACK_START: usize = 32 * 1024;
/// Largest size of a JIT stack, in bytes: 512 KiB, which pcre2jit(3) calls enough for most expressions.
const JIT_STACK_MAX: usize = 512 * 1024;

/// The reason why PCRE2 refuses an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeError {
    /// Message of PCRE2.
    pub(crate) message: String,
    /// Byte of the expression at which compilation ended.
    pub(crate) offset: usize,
}

/// Compiled code.
#[derive(Debug)]
pub(crate) struct Code {
    raw: NonNull<sys::pcre2_code_8>,
}

// SAFETY: after compilation (JIT included, see the module's rules) code is only read, and pcre2api(3),
// "Multithreading", allows matches from many threads with one code.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Compiles `pattern` with options of `pcre2_compile`. A line ends at LF, whatever the library's default.
    pub(crate) fn compile(pattern: &[u8], options: u32) -> Result<Self, CodeError> {
        let mut code: c_int = 0;
        let mut offset = 0usize;
        // SAFETY: the context is made, used and freed here (freeing null is allowed, as is compiling with
        // null); pattern and length are of one slice; error code and offset are written on failure.
        let raw = unsafe {
            let context = sys::pcre2_compile_context_create_8(ptr::null_mut());
            if !context.is_null() {
                sys::pcre2_set_newline_8(context, sys::PCRE2_NEWLINE_LF);
            }
            let raw = sys::pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                options,
                &mut code,
                &mut offset,
                context,
            );
            sys::pcre2_compile_context_free_8(context);
            raw
        };
        NonNull::new(raw)
            .map(|raw| Self { raw })
            .ok_or_else(|| CodeError { message: error_text(code), offset })
    }

    /// Compiles to machine code. Returns `false` if PCRE2 or the system does not allow it; matches are
    /// interpreted then.
    ///
    /// Must not run while another thread matches with this code: see the module's rules.
    pub(crate) fn jit_compile(&self) -> bool {
        // SAFETY: the code is valid; nobody matches with it yet (module's rules).
        unsafe { sys::pcre2_jit_compile_8(self.raw.as_ptr(), sys::PCRE2_JIT_COMPLETE) == 0 }
    }

    /// Number of capture groups.
    pub(crate) fn capture_count(&self) -> u32 {
        self.info(sys::PCRE2_INFO_CAPTURECOUNT)
    }

    /// Names of capture groups and their numbers, by name.
    pub(crate) fn names(&self) -> Vec<(String, u32)> {
        let count: u32 = self.info(sys::PCRE2_INFO_NAMECOUNT);
        let size = self.info::<u32>(sys::PCRE2_INFO_NAMEENTRYSIZE) as usize;
        let mut table: *const u8 = ptr::null();
        // SAFETY: this kind of information is a pointer.
        unsafe {
            sys::pcre2_pattern_info_8(self.raw.as_ptr(), sys::PCRE2_INFO_NAMETABLE, (&raw mut table).cast())
        };
        let Some(length) = size.checked_mul(count as usize).filter(|l| *l > 0 && !table.is_null()) else {
            return Vec::new();
        };
        // SAFETY: the table has `count` entries of `size` bytes and lives as long as the code.
        let table = unsafe { std::slice::from_raw_parts(table, length) };
        // An entry is the number in two bytes, big-endian, and the name with a NUL at its end.
        let entry = |entry: &[u8]| {
            let (number, name) = entry.split_first_chunk::<2>()?;
            let name = name.split(|b| *b == 0).next()?;
            Some((String::from_utf8_lossy(name).into_owned(), u32::from(u16::from_be_bytes(*number))))
        };
        table.chunks_exact(size).filter_map(entry).collect()
    }

    /// Bytes of memory held, machine code included.
    pub(crate) fn memory_usage(&self) -> usize {
        self.info::<usize>(sys::PCRE2_INFO_SIZE) + self.info::<usize>(sys::PCRE2_INFO_JITSIZE)
    }

    /// `T` must be the type that pcre2api(3) gives for `what`: `u32` or `usize`; 0 if PCRE2 does not know it.
    fn info<T: Default>(&self, what: u32) -> T {
        let mut value = T::default();
        // SAFETY: the code is valid and the result has the type that belongs to `what` (private; the callers
        // are above).
        unsafe { sys::pcre2_pattern_info_8(self.raw.as_ptr(), what, (&raw mut value).cast::<c_void>()) };
        value
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: made by pcre2_compile, freed once; machine code goes with it.
        unsafe { sys::pcre2_code_free_8(self.raw.as_ptr()) };
    }
}

/// Memory for pointers of empty haystacks.
static SOMEWHERE: [u8; 1] = [0];

/// The limits of a new match context, which a search replaces.
const NO_LIMITS: Limits = Limits { matches: u32::MAX, depth: u32::MAX, heap_kib: u32::MAX };

/// Match state of one thread: result offsets, limits, machine-code stack.
#[derive(Debug)]
pub(crate) struct MatchState {
    data: NonNull<sys::pcre2_match_data_8>,
    context: NonNull<sys::pcre2_match_context_8>,
    /// Null if it could not be made: PCRE2 then uses 32 KiB of the thread's own stack.
    jit_stack: *mut sys::pcre2_jit_stack_8,
    pairs: u32,
    limits: Limits,
}

// SAFETY: blocks of memory without ties to a thread; one owner. Not Sync.
unsafe impl Send for MatchState {}

/// The result of a match attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pcre2Outcome {
    /// A match, with this many pairs of offsets set.
    Matched(u32),
    /// No match.
    NoMatch,
    /// PCRE2's error code: a limit, or something unexpected.
    Failed(c_int),
}

impl MatchState {
    /// A state with room for the offsets of `pairs` groups, the whole match included. `None` without memory.
    pub(crate) fn new(pairs: u32) -> Option<Self> {
        let pairs = pairs.clamp(1, 65_536);
        // SAFETY: plain constructors; null means no memory, which is handled for each, and what was made
        // before is freed.
        unsafe {
            let data = NonNull::new(sys::pcre2_match_data_create_8(pairs, ptr::null_mut()))?;
            let Some(context) = NonNull::new(sys::pcre2_match_context_create_8(ptr::null_mut())) else {
                sys::pcre2_match_data_free_8(data.as_ptr());
                return None;
            };
            let jit_stack = sys::pcre2_jit_stack_create_8(JIT_STACK_START, JIT_STACK_MAX, ptr::null_mut());
            if !jit_stack.is_null() {
                // Without a callback the last argument is the stack itself.
                sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, jit_stack.cast());
            }
            Some(Self { data, context, jit_stack, pairs, limits: NO_LIMITS })
        }
    }

    /// Number of groups for which the state has room, the whole match included.
    pub(crate) fn pairs(&self) -> u32 {
        self.pairs
    }

    /// Searches `subject` from `start`.
    #[inline]
    pub(crate) fn find(
        &mut self,
        code: &Code,
        subject: &[u8],
        start: usize,
        options: u32,
        limits: Limits,
    ) -> Pcre2Outcome {
        if start > subject.len() {
            return Pcre2Outcome::NoMatch;
        }
        // An empty slice may have address 1, and machine code for a look-behind steps back before it
        // compares: below zero.
        let subject = if subject.is_empty() { SOMEWHERE.get(..0).unwrap_or_default() } else { subject };
        if limits != self.limits {
            // SAFETY: the context is valid and ours.
            unsafe {
                sys::pcre2_set_match_limit_8(self.context.as_ptr(), limits.matches);
                sys::pcre2_set_depth_limit_8(self.context.as_ptr(), limits.depth);
                sys::pcre2_set_heap_limit_8(self.context.as_ptr(), limits.heap_kib);
            }
            self.limits = limits;
        }
        // SAFETY: the code is valid and no longer written to; subject and length are of one slice, start lies
        // in it; data and context are ours. UTF is off (NEVER_UTF), so no check of the subject is skipped.
        let code = unsafe {
            sys::pcre2_match_8(
                code.raw.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                start,
                options,
                self.data.as_ptr(),
                self.context.as_ptr(),
            )
        };
        match code {
            // Zero: more groups than room; those that fit are set.
            0 => Pcre2Outcome::Matched(self.pairs),
            sys::PCRE2_ERROR_NOMATCH => Pcre2Outcome::NoMatch,
            code => u32::try_from(code).map_or(Pcre2Outcome::Failed(code), Pcre2Outcome::Matched),
        }
    }

    /// The offsets of the last match: start and end of the whole match, of group 1, ...; [`UNSET`] twice for
    /// a group that took no part.
    #[inline]
    pub(crate) fn offsets(&self, pairs: u32) -> &[usize] {
        let count = pairs.min(self.pairs) as usize * 2;
        // SAFETY: the vector has two offsets per pair and lives as long as the match data; `find` has set it.
        unsafe { std::slice::from_raw_parts(sys::pcre2_get_ovector_pointer_8(self.data.as_ptr()), count) }
    }

    /// Bytes of memory held, with the largest size of the machine-code stack. Without the heap that the
    /// interpreter keeps between matches (bounded by the heap limit): the function that reports it exists
    /// since PCRE2 10.43.
    pub(crate) fn memory_usage(&self) -> usize {
        // SAFETY: the data is valid.
        let data = unsafe { sys::pcre2_get_match_data_size_8(self.data.as_ptr()) };
        data + if self.jit_stack.is_null() { 0 } else { JIT_STACK_MAX }
    }
}

impl Drop for MatchState {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once; the context, which refers to the stack, goes first. Null is
        // allowed for the stack.
        unsafe {
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_jit_stack_free_8(self.jit_stack);
        }
    }
}

/// An offset of a group that took no part in the match.
pub(crate) const UNSET: usize = sys::PCRE2_UNSET;

/// PCRE2's message for an error code.
pub(crate) fn error_text(code: c_int) -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: pointer and length are of one buffer; the text is cut where it does not fit and ends in NUL.
    let length = unsafe { sys::pcre2_get_error_message_8(code, buffer.as_mut_ptr(), buffer.len()) };
    match usize::try_from(length).ok().and_then(|length| buffer.get(..length)) {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None => format!("PCRE2 error {code}"),
    }
}

/// Whether the library was built with its compiler to machine code.
pub(crate) fn has_jit() -> bool {
    let mut answer = 0u32;
    // SAFETY: this kind of information is a `u32`.
    let length = unsafe { sys::pcre2_config_8(sys::PCRE2_CONFIG_JIT, (&raw mut answer).cast()) };
    length >= 0 && answer == 1
}

/// The library's version, for example `10.42 2022-12-11`.
pub(crate) fn version() -> String {
    let mut buffer = [0u8; 64];
    // SAFETY: a null result asks for the length; the second call is made only if that fits the buffer.
    let length = unsafe {
        let length = sys::pcre2_config_8(sys::PCRE2_CONFIG_VERSION, ptr::null_mut());
        if usize::try_from(length).is_ok_and(|l| l <= buffer.len()) {
            sys::pcre2_config_8(sys::PCRE2_CONFIG_VERSION, buffer.as_mut_ptr().cast())
        } else {
            0
        }
    };
    let text =
        usize::try_from(length).ok().and_then(|l| buffer.get(..l.saturating_sub(1))).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
