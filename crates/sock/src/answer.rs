// SPDX-License-Identifier: Apache-2.0
//! Results as C functions return them.

use rustix::io::Errno;

/// A result that C has as a number, with -1 for errors.
pub(crate) trait CResult: Sized {
    /// The error.
    const FAILED: Self;
    /// A count.
    fn of(count: usize) -> Self;
}

impl CResult for i32 {
    const FAILED: i32 = -1;
    fn of(count: usize) -> i32 {
        i32::try_from(count).unwrap_or(i32::MAX)
    }
}

impl CResult for isize {
    const FAILED: isize = -1;
    fn of(count: usize) -> isize {
        isize::try_from(count).unwrap_or(isize::MAX)
    }
}

/// Sets `errno` and returns -1.
pub(crate) fn fail<C: CResult>(error: Errno) -> C {
    crate::pointers::set_errno(error.raw_os_error());
    C::FAILED
}

/// The count, or -1 and `errno`.
pub(crate) fn answer<C: CResult>(result: Result<usize, Errno>) -> C {
    match result {
        Ok(count) => C::of(count),
        Err(error) => fail(error),
    }
}

/// 0, or -1 and `errno`.
pub(crate) fn done(result: Result<(), Errno>) -> i32 {
    answer(result.map(|()| 0))
}
