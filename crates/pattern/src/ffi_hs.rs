// SPDX-License-Identifier: Apache-2.0
//! libhs (Hyperscan 5.x, Vectorscan 5.x), loaded at run time: the functions of `hs.h` that this crate calls,
//! and safe owners around them.
//!
//! Why unsafe: libhs is a C library, and it is optional, so neither a build dependency nor a linked binding
//! is possible; its functions come from `dlsym`. Nothing outside of this module sees a raw pointer of it.
//!
//! Rules that the owners keep:
//! * The library is loaded once per [`Library`] and never unloaded; every owner holds an `Arc` of it.
//! * A database is immutable once made: many threads may scan with it.
//! * A scratch is used by one scan at a time (`&mut`) and only with databases that it was made for. libhs
//!   does not check the latter fully, so it is tracked here: each library keeps one prototype scratch that
//!   grows with every database, and numbers the databases; a scratch is a clone of the prototype and knows
//!   the number at which it was cloned.
//!
//! Literals are passed as regular expressions of `\xHH`: the library's own literal API of 5.4.0 stops at NUL
//! bytes and can fail in a scan (intel/hyperscan issues 427, 303, 353).
//!
//! Source: Hyperscan developer reference, `hs_compile.h`, `hs_runtime.h`, `hs_common.h` of 5.4.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the library for the dynamic linker. Debian's libhyperscan5 and libvectorscan5 both provide it.
pub const SONAME: &str = "libhs.so.5";

const HS_SUCCESS: c_int = 0;
const HS_SCAN_TERMINATED: c_int = -3;
const HS_MODE_BLOCK: c_uint = 1;
pub(crate) const HS_FLAG_CASELESS: c_uint = 1;
pub(crate) const HS_FLAG_DOTALL: c_uint = 2;
pub(crate) const HS_FLAG_MULTILINE: c_uint = 4;
pub(crate) const HS_FLAG_SINGLEMATCH: c_uint = 8;

type MatchHandler = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

/// `hs_compile_error_t`.
#[repr(C)]
struct RawCompileError {
    message: *mut c_char,
    expression: c_int,
}

/// `hs_expr_info_t`.
#[repr(C)]
struct RawExpressionInfo {
    min_width: c_uint,
    max_width: c_uint,
    unordered_matches: c_char,
    matches_at_eod: c_char,
    matches_only_at_eod: c_char,
}

/// `hs_platform_info_t`.
#[repr(C)]
#[derive(Default)]
struct RawPlatform {
    tune: c_uint,
    cpu_features: c_ulonglong,
    reserved1: c_ulonglong,
    reserved2: c_ulonglong,
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        struct HsFunctions { $($name: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl HsFunctions {
            fn find(handle: NonNull<c_void>) -> Result<Self, LoadError> {
                Ok(Self {
                    $($name: {
                        let address = symbol(handle, stringify!($name))?;
                        // SAFETY: the symbol is a function of libhs 5 with this C signature (checked against
                        // the headers of 5.4); a function pointer and an object pointer have one size on the
                        // platforms that have dlsym.
                        unsafe {
                            std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> $result>(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    hs_version: fn() -> *const c_char;
    hs_valid_platform: fn() -> c_int;
    hs_populate_platform: fn(*mut RawPlatform) -> c_int;
    hs_compile_multi: fn(
        *const *const c_char, *const c_uint, *const c_uint, c_uint, c_uint, *const RawPlatform,
        *mut *mut c_void, *mut *mut RawCompileError
    ) -> c_int;
    hs_expression_info: fn(*const c_char, c_uint, *mut *mut RawExpressionInfo, *mut *mut RawCompileError) -> c_int;
    hs_free_compile_error: fn(*mut RawCompileError) -> c_int;
    hs_free_database: fn(*mut c_void) -> c_int;
    hs_database_size: fn(*const c_void, *mut usize) -> c_int;
    hs_serialize_database: fn(*const c_void, *mut *mut c_char, *mut usize) -> c_int;
    hs_deserialize_database: fn(*const c_char, usize, *mut *mut c_void) -> c_int;
    hs_alloc_scratch: fn(*const c_void, *mut *mut c_void) -> c_int;
    hs_clone_scratch: fn(*const c_void, *mut *mut c_void) -> c_int;
    hs_scratch_size: fn(*const c_void, *mut usize) -> c_int;
    hs_free_scratch: fn(*mut c_void) -> c_int;
    hs_scan: fn(
        *const c_void, *const c_char, c_uint, c_uint, *mut c_void, Option<MatchHandler>, *mut c_void
    ) -> c_int;
}

fn symbol(handle: NonNull<c_void>, name: &'static str) -> Result<NonNull<c_void>, LoadError> {
    let c_name = CString::new(name).map_err(|_| LoadError::Symbol { name })?;
    // SAFETY: the handle is one that dlopen returned and that is never closed; the name ends in NUL.
    let address = unsafe { libc::dlsym(handle.as_ptr(), c_name.as_ptr()) };
    NonNull::new(address).ok_or(LoadError::Symbol { name })
}

/// The reason why libhs cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadError {
    /// The dynamic linker does not find it.
    #[error("{SONAME} cannot be loaded ({0}); Debian has it in libhyperscan5 and libvectorscan5")]
    Missing(String),
    /// The library lacks a function.
    #[error("{SONAME} lacks the function {name}: it is not a libhs of version 5")]
    Symbol {
        /// Name of the function.
        name: &'static str,
    },
    /// The library does not run on this processor.
    #[error("{SONAME} does not run on this processor (hs_valid_platform: {0})")]
    Platform(c_int),
    /// The library has another major version.
    #[error("{SONAME} says it is version {0:?}; 5 is needed")]
    Version(String),
}

/// An error code of libhs, as `hs_common.h` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("libhs error {0}")]
pub(crate) struct HsError(pub(crate) c_int);

/// The reason why libhs refuses to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HsCompileError {
    /// Message of the library.
    pub(crate) message: String,
    /// Index of the expression in the list, if one causes the error.
    pub(crate) expression: Option<usize>,
}

/// One loaded libhs.
pub(crate) struct Library {
    functions: HsFunctions,
    version: Box<str>,
    /// Tuning family and processor features that a database compiled here depends on.
    platform: (c_uint, c_ulonglong),
    prototype: Mutex<Prototype>,
}

/// The scratch that fits every database made so far.
struct Prototype {
    scratch: *mut c_void,
    /// Number of the youngest database that the scratch fits.
    serial: u64,
    /// Growing failed once: libhs has freed the scratch, and no new one would fit the older databases.
    lost: bool,
}

// SAFETY: the scratch is a block of memory without ties to a thread; it is only touched under the mutex.
unsafe impl Send for Prototype {}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("version", &self.version).field("platform", &self.platform).finish()
    }
}

impl Library {
    /// Loads libhs and checks that it can be used here.
    pub(crate) fn load() -> Result<Arc<Self>, LoadError> {
        let c_name = CString::new(SONAME).map_err(|e| LoadError::Missing(e.to_string()))?;
        // SAFETY: the name ends in NUL. Loading runs the constructors of the library, those of a C++ library
        // without effects outside of it. The handle is never closed, so what is found in it stays valid.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else { return Err(LoadError::Missing(last_dl_error())) };
        let functions = HsFunctions::find(handle)?;
        // SAFETY: takes nothing, returns a code.
        let valid = unsafe { (functions.hs_valid_platform)() };
        if valid != HS_SUCCESS {
            return Err(LoadError::Platform(valid));
        }
        // SAFETY: returns a static string that ends in NUL.
        let version = unsafe { CStr::from_ptr((functions.hs_version)()) }.to_string_lossy().into_owned();
        if !version.starts_with("5.") {
            return Err(LoadError::Version(version));
        }
        let mut platform = RawPlatform::default();
        // SAFETY: the struct has the layout of hs_platform_info_t and lives through the call.
        let code = unsafe { (functions.hs_populate_platform)(&mut platform) };
        if code != HS_SUCCESS {
            return Err(LoadError::Platform(code));
        }
        let prototype = Mutex::new(Prototype { scratch: ptr::null_mut(), serial: 0, lost: false });
        Ok(Arc::new(Self {
            functions,
            version: version.into_boxed_str(),
            platform: (platform.tune, platform.cpu_features),
            prototype,
        }))
    }

    /// The library's version text, for example `5.4.0 2021-01-26`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Tuning family and processor features.
    pub(crate) fn platform(&self) -> (u32, u64) {
        self.platform
    }

    /// The least length of a match of `expression`, or the error why it cannot be compiled.
    pub(crate) fn min_width(&self, expression: &CStr, flags: c_uint) -> Result<u32, HsCompileError> {
        let mut info: *mut RawExpressionInfo = ptr::null_mut();
        let mut error: *mut RawCompileError = ptr::null_mut();
        // SAFETY: the expression ends in NUL; both results are written by the call or left null.
        let code =
            unsafe { (self.functions.hs_expression_info)(expression.as_ptr(), flags, &mut info, &mut error) };
        if code != HS_SUCCESS || info.is_null() {
            return Err(self.take_error(code, error));
        }
        // SAFETY: not null and filled on success; it is ours to free with the allocator of the library, which
        // is malloc as nobody sets another.
        let min_width = unsafe {
            let min_width = (*info).min_width;
            libc::free(info.cast());
            min_width
        };
        Ok(min_width)
    }

    /// Compiles `expressions` with their flags for block scans; a match reports the index in the list.
    pub(crate) fn compile(
        self: &Arc<Self>,
        expressions: &[CString],
        flags: &[c_uint],
    ) -> Result<Database, HsCompileError> {
        let unfit = || HsCompileError { message: "too many expressions".into(), expression: None };
        let count = c_uint::try_from(expressions.len()).map_err(|_| unfit())?;
        let pointers: Vec<*const c_char> = expressions.iter().map(|e| e.as_ptr()).collect();
        let ids: Vec<c_uint> = (0..count).collect();
        if flags.len() != expressions.len() {
            return Err(unfit());
        }
        let mut database: *mut c_void = ptr::null_mut();
        let mut error: *mut RawCompileError = ptr::null_mut();
        // SAFETY: three arrays of `count` elements that live through the call, strings that end in NUL; a
        // null platform means this machine; both results are written by the call or left null.
        let code = unsafe {
            (self.functions.hs_compile_multi)(
                pointers.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                count,
                HS_MODE_BLOCK,
                ptr::null(),
                &mut database,
                &mut error,
            )
        };
        match NonNull::new(database) {
            Some(database) if code == HS_SUCCESS => self.adopt(database).map_err(|e| HsCompileError {
                message: format!("no memory for the scratch space of the set ({e})"),
                expression: None,
            }),
            _ => Err(self.take_error(code, error)),
        }
    }

    /// Makes a database from the bytes of [`Database::serialize`]. libhs checks version, platform and a CRC;
    /// the caller vouches that libhs wrote the bytes (a crafted database can do anything).
    pub(crate) fn deserialize(self: &Arc<Self>, bytes: &[u8]) -> Result<Database, HsError> {
        let mut database: *mut c_void = ptr::null_mut();
        // SAFETY: pointer and length are of one slice; the result is written on success only.
        let code = unsafe {
            (self.functions.hs_deserialize_database)(bytes.as_ptr().cast(), bytes.len(), &mut database)
        };
        match NonNull::new(database) {
            Some(database) if code == HS_SUCCESS => self.adopt(database),
            _ => Err(HsError(code)),
        }
    }

    /// Takes ownership of a fresh database and grows the prototype scratch for it.
    fn adopt(self: &Arc<Self>, raw: NonNull<c_void>) -> Result<Database, HsError> {
        let mut database = Database { library: Arc::clone(self), raw, serial: 0 };
        let mut prototype = self.prototype();
        if prototype.lost {
            return Err(HsError(-2));
        }
        // SAFETY: the database is valid; the scratch is null or one that libhs made, not in use (mutex). The
        // call replaces it by one that fits this database and all earlier ones.
        let code = unsafe { (self.functions.hs_alloc_scratch)(raw.as_ptr(), &mut prototype.scratch) };
        if code != HS_SUCCESS {
            prototype.lost = true;
            prototype.scratch = ptr::null_mut();
            return Err(HsError(code));
        }
        prototype.serial += 1;
        database.serial = prototype.serial;
        Ok(database)
    }

    fn prototype(&self) -> MutexGuard<'_, Prototype> {
        self.prototype.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_error(&self, code: c_int, error: *mut RawCompileError) -> HsCompileError {
        if error.is_null() {
            return HsCompileError { message: HsError(code).to_string(), expression: None };
        }
        // SAFETY: not null, so the library has filled it, its message ends in NUL; it is freed here, once.
        unsafe {
            let message = match (*error).message {
                text if text.is_null() => HsError(code).to_string(),
                text => CStr::from_ptr(text).to_string_lossy().into_owned(),
            };
            let expression = usize::try_from((*error).expression).ok();
            (self.functions.hs_free_compile_error)(error);
            HsCompileError { message, expression }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let scratch = self.prototype().scratch;
        // SAFETY: null (allowed) or a scratch of this library that nobody else knows.
        unsafe { (self.functions.hs_free_scratch)(scratch) };
    }
}

fn last_dl_error() -> String {
    // SAFETY: dlerror returns null or a string that ends in NUL and stays until the next call of this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "no reason given".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// A compiled set.
#[derive(Debug)]
pub(crate) struct Database {
    library: Arc<Library>,
    raw: NonNull<c_void>,
    serial: u64,
}

// SAFETY: a database is not written to after it was made; hs_scan takes it const, and the documentation of
// libhs allows scans from many threads with one database.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// The bytes for [`Library::deserialize`].
    pub(crate) fn serialize(&self) -> Result<Vec<u8>, HsError> {
        let mut bytes: *mut c_char = ptr::null_mut();
        let mut length = 0usize;
        // SAFETY: the database is valid; both results are written on success.
        let code = unsafe {
            (self.library.functions.hs_serialize_database)(self.raw.as_ptr(), &mut bytes, &mut length)
        };
        if code != HS_SUCCESS || bytes.is_null() {
            return Err(HsError(code));
        }
        // SAFETY: the library has written `length` bytes at `bytes`; they are ours to free with its allocator
        // (malloc).
        unsafe {
            let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
            libc::free(bytes.cast());
            Ok(copy)
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_usage(&self) -> usize {
        let mut size = 0usize;
        // SAFETY: the database is valid; the size is written on success, else stays 0.
        unsafe { (self.library.functions.hs_database_size)(self.raw.as_ptr(), &mut size) };
        size
    }

    /// Calls `on_hit(index, end)` for the hits in `haystack` until it returns false. Ends ascend per
    /// expression, not over all.
    ///
    /// A haystack is at most `u32::MAX` bytes; a longer one is refused with libhs' code for an invalid
    /// argument.
    #[inline]
    pub(crate) fn scan<F: FnMut(u32, usize) -> bool>(
        &self,
        scratch: &mut HsScratch,
        haystack: &[u8],
        on_hit: F,
    ) -> Result<(), HsError> {
        let length = c_uint::try_from(haystack.len()).map_err(|_| HsError(-1))?;
        if !scratch.fits(self) {
            return Err(HsError(-1));
        }
        let mut context = HsScanContext { on_hit, panic: None };
        // SAFETY: the database is valid; pointer and length are of one slice that lives through the call; the
        // scratch fits the database (checked above) and is not in use (`&mut`, and a handler cannot reach
        // it); the handler gets back the context, which lives through the call, as the type that it expects.
        let code = unsafe {
            (self.library.functions.hs_scan)(
                self.raw.as_ptr(),
                haystack.as_ptr().cast(),
                length,
                0,
                scratch.raw.as_ptr(),
                Some(on_match::<F>),
                (&raw mut context).cast(),
            )
        };
        if let Some(panic) = context.panic {
            resume_unwind(panic);
        }
        match code {
            HS_SUCCESS | HS_SCAN_TERMINATED => Ok(()),
            other => Err(HsError(other)),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once; no scan is running as that would borrow the database.
        unsafe { (self.library.functions.hs_free_database)(self.raw.as_ptr()) };
    }
}

struct HsScanContext<F> {
    on_hit: F,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// The match handler: 0 continues, any other value ends the scan. A panic of the caller's closure must not
/// unwind through C: it is kept and resumed when the scan has ended.
///
/// # Safety
/// `context` points to a `HsScanContext<F>` that nobody else uses during the call.
unsafe extern "C" fn on_match<F: FnMut(u32, usize) -> bool>(
    id: c_uint,
    _from: c_ulonglong,
    to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see above; `Database::scan` is the only one who passes this handler.
    let context = unsafe { &mut *context.cast::<HsScanContext<F>>() };
    // Ends are at most the length of the haystack, which is a u32.
    let end = to as usize;
    match catch_unwind(AssertUnwindSafe(|| (context.on_hit)(id, end))) {
        Ok(go_on) => c_int::from(!go_on),
        Err(panic) => {
            context.panic = Some(panic);
            1
        }
    }
}

/// The scratch of one thread: fits every database of its library that existed when it was cloned.
#[derive(Debug)]
pub(crate) struct HsScratch {
    library: Arc<Library>,
    raw: NonNull<c_void>,
    serial: u64,
}

// SAFETY: a block of memory without ties to a thread; one owner. Not Sync, and no method writes through
// `&self`.
unsafe impl Send for HsScratch {}

impl HsScratch {
    /// A scratch that fits `database` and all earlier ones of its library. Allocates.
    pub(crate) fn for_database(database: &Database) -> Result<Self, HsError> {
        let library = Arc::clone(&database.library);
        let mut raw: *mut c_void = ptr::null_mut();
        let prototype = library.prototype();
        if prototype.lost || prototype.scratch.is_null() {
            return Err(HsError(-2));
        }
        // SAFETY: the prototype is a valid scratch that is not in use (mutex); the result is written on
        // success.
        let code = unsafe { (library.functions.hs_clone_scratch)(prototype.scratch, &mut raw) };
        let serial = prototype.serial;
        drop(prototype);
        match NonNull::new(raw) {
            Some(raw) if code == HS_SUCCESS => Ok(Self { library, raw, serial }),
            _ => Err(HsError(code)),
        }
    }

    /// Whether a scan with `database` may use this scratch.
    #[inline]
    pub(crate) fn fits(&self, database: &Database) -> bool {
        self.serial >= database.serial && Arc::ptr_eq(&self.library, &database.library)
    }

    /// Bytes of memory held.
    pub(crate) fn memory_usage(&self) -> usize {
        let mut size = 0usize;
        // SAFETY: the scratch is valid; the size is written on success, else stays 0.
        unsafe { (self.library.functions.hs_scratch_size)(self.raw.as_ptr(), &mut size) };
        size
    }
}

impl Drop for HsScratch {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once, not in use.
        unsafe { (self.library.functions.hs_free_scratch)(self.raw.as_ptr()) };
    }
}
