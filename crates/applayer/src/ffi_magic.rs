// SPDX-License-Identifier: Apache-2.0
//! libmagic, loaded at run time, which determines the type of a file's content in words.
//!
//! Why unsafe: libmagic is a C library, and it is optional. It reads foreign bytes, so it is loaded only when
//! a rule or an output needs it. Nothing outside of this module sees a raw pointer of it.
//!
//! Rules that the owners keep:
//! * The library is loaded once per process and never unloaded.
//! * A cookie is used by one thread at a time: each thread opens its own, and closes it when the thread ends.
//! * What a call returns is copied before the next call with the same cookie.
//!
//! Source: `man 3 libmagic`, `magic.h` of file 5.x.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// Name of the library for the dynamic linker; Debian has it in libmagic1.
const SONAME: &str = "libmagic.so.1";
const MAGIC_NONE: c_int = 0;

type Open = unsafe extern "C" fn(c_int) -> *mut c_void;
type Load = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;
type Buffer = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *const c_char;
type Text = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Close = unsafe extern "C" fn(*mut c_void);

/// The functions that this module calls.
struct MagicFunctions {
    open: Open,
    load: Load,
    buffer: Buffer,
    error: Text,
    close: Close,
}

/// The reason why libmagic cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MagicError {
    /// The dynamic linker does not find it.
    #[error("{SONAME} cannot be loaded; Debian has it in libmagic1")]
    Missing,
    /// The library lacks a function.
    #[error("{SONAME} lacks the function {0}")]
    Symbol(&'static str),
    /// Its database cannot be loaded.
    #[error("libmagic cannot load its database: {0}")]
    Database(String),
    /// The path of the database contains a NUL.
    #[error("the path of the database of libmagic has a NUL byte")]
    Path,
}

fn functions() -> Result<&'static MagicFunctions, MagicError> {
    static FUNCTIONS: OnceLock<Result<MagicFunctions, MagicError>> = OnceLock::new();
    FUNCTIONS.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<MagicFunctions, MagicError> {
    let name = CString::new(SONAME).map_err(|_| MagicError::Missing)?;
    // SAFETY: the name ends in NUL. The library has no constructors with effects outside of it; the handle is
    // never closed, so what is found in it stays valid.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let handle = NonNull::new(handle).ok_or(MagicError::Missing)?;
    let symbol = |name: &'static str| {
        let c_name = CString::new(name).map_err(|_| MagicError::Symbol(name))?;
        // SAFETY: the handle is one that dlopen returned and that is never closed; the name ends in NUL.
        let address = unsafe { libc::dlsym(handle.as_ptr(), c_name.as_ptr()) };
        NonNull::new(address).ok_or(MagicError::Symbol(name))
    };
    // SAFETY: the symbols are functions of libmagic with these C signatures (magic.h of 5.x); a function
    // pointer and an object pointer have one size on the platforms that have dlsym.
    unsafe {
        Ok(MagicFunctions {
            open: std::mem::transmute::<NonNull<c_void>, Open>(symbol("magic_open")?),
            load: std::mem::transmute::<NonNull<c_void>, Load>(symbol("magic_load")?),
            buffer: std::mem::transmute::<NonNull<c_void>, Buffer>(symbol("magic_buffer")?),
            error: std::mem::transmute::<NonNull<c_void>, Text>(symbol("magic_error")?),
            close: std::mem::transmute::<NonNull<c_void>, Close>(symbol("magic_close")?),
        })
    }
}

/// An open cookie of a thread.
struct Cookie {
    functions: &'static MagicFunctions,
    raw: NonNull<c_void>,
    database: Option<PathBuf>,
}

impl Cookie {
    fn open(database: Option<&Path>) -> Result<Self, MagicError> {
        let functions = functions()?;
        let path = match database {
            Some(path) => {
                Some(CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| MagicError::Path)?)
            }
            None => None,
        };
        // SAFETY: takes flags, returns a cookie or null.
        let raw = unsafe { (functions.open)(MAGIC_NONE) };
        let raw = NonNull::new(raw).ok_or_else(|| MagicError::Database("no memory".to_owned()))?;
        let cookie = Cookie { functions, raw, database: database.map(Path::to_path_buf) };
        let name = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: the cookie is open and this thread's; the name ends in NUL, or is null for the default
        // database.
        if unsafe { (functions.load)(cookie.raw.as_ptr(), name) } != 0 {
            return Err(MagicError::Database(cookie.last_error()));
        }
        Ok(cookie)
    }

    fn last_error(&self) -> String {
        // SAFETY: the cookie is open and this thread's; the text, if there is one, ends in NUL and is copied
        // at once.
        unsafe {
            let text = (self.functions.error)(self.raw.as_ptr());
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }

    fn identify(&self, data: &[u8]) -> Option<Box<str>> {
        // SAFETY: the cookie is open and this thread's; the library reads `data.len()` bytes; the text ends
        // in NUL, is valid until the next call with the cookie, and is copied at once.
        unsafe {
            let text = (self.functions.buffer)(self.raw.as_ptr(), data.as_ptr().cast(), data.len());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned().into_boxed_str())
        }
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        // SAFETY: the cookie is open and nobody uses it any more.
        unsafe { (self.functions.close)(self.raw.as_ptr()) }
    }
}

thread_local! {
    static COOKIE: RefCell<Option<Cookie>> = const { RefCell::new(None) };
}

/// Determines the type of content, in the words of libmagic; `None` if it has none. `database`: libmagic's
/// database, or else the default one.
///
/// # Errors
/// The library or its database cannot be loaded.
pub(crate) fn identify(data: &[u8], database: Option<&Path>) -> Result<Option<Box<str>>, MagicError> {
    COOKIE.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|cookie| cookie.database.as_deref() != database) {
            *slot = Some(Cookie::open(database)?);
        }
        Ok(slot.as_ref().and_then(|cookie| cookie.identify(data)))
    })
}
