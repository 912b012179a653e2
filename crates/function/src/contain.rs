// SPDX-License-Identifier: Apache-2.0
//! A function that panics is contained: the panic ends at the call, and who called it gets to know what was
//! said and where.
//!
//! Not contained, because the process ends with it: a stack that overflows, a panic while another one
//! unwinds, memory that cannot be had, `abort`. A function that does not return is found by others
//! (docs/functions.md).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A panic that was contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked {
    /// What it said.
    pub message: String,
    /// Where: `file:line:column`. Empty if nobody has noted it ([`note_places`] was not called).
    pub place: String,
}

impl core::fmt::Display for Panicked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "it panicked: {}", self.message),
            place => write!(f, "it panicked at {place}: {}", self.message),
        }
    }
}

/// Bytes of a panic's message that are kept.
const MESSAGE_MAX: usize = 512;

thread_local! {
    /// A call is under way whose panic will be contained: who contains it says so, and nothing else does.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The latest panic inside.
    static LATEST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// From now on places of contained panics are known, and these are not told on standard error. Others are
/// told as before.
pub fn note_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| match INSIDE.get() {
            true => note(info),
            false => before(info),
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let panicked = Panicked { message: message_of(info.payload()), place };
    // A panic while the cell is borrowed would be one of ours.
    LATEST.with(|latest| latest.try_borrow_mut().map(|mut latest| *latest = Some(panicked)).ok());
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("what it says is no text");
    text.chars().take(MESSAGE_MAX).collect()
}

/// Calls, and contains a panic. What the callee worked on is as it was left: who calls puts it right or
/// throws it away.
///
/// # Errors
/// It panicked.
#[inline]
pub fn contained<T>(call: impl FnOnce() -> T) -> Result<T, Box<Panicked>> {
    let before = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    INSIDE.set(before);
    result.map_err(take)
}

#[cold]
#[inline(never)]
fn take(payload: Box<dyn Any + Send>) -> Box<Panicked> {
    let noted = LATEST.with(|latest| latest.try_borrow_mut().ok().and_then(|mut latest| latest.take()));
    let panicked =
        noted.unwrap_or_else(|| Panicked { message: message_of(&*payload), ..Panicked::default() });
    throw_away(payload);
    Box::new(panicked)
}

/// Frees what is suspect: a panic on the way changes nothing, what is left of it is lost.
pub fn throw_away<T>(value: T) {
    let before = INSIDE.replace(true);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
        // Freeing this one may panic as well, without end.
        core::mem::forget(payload);
    }
    INSIDE.set(before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_says_and_where_is_kept_and_the_next_call_is_none_the_worse() {
        note_places();
        note_places();
        let panicked = contained(|| -> u32 { panic!("seven of {}", 9) }).unwrap_err();
        assert_eq!(panicked.message, "seven of 9");
        assert!(panicked.place.contains("contain.rs:"), "{panicked}");
        assert_eq!(contained(|| 7), Ok(7));
        let panicked = contained(|| std::panic::panic_any(7u32)).unwrap_err();
        assert_eq!(panicked.message, "what it says is no text");
    }

    #[test]
    fn a_panic_that_is_thrown_on_keeps_its_place() {
        note_places();
        let outer = contained(|| {
            let inner = catch_unwind(|| panic!("inner")).unwrap_err();
            std::panic::resume_unwind(inner)
        });
        let panicked: Box<Panicked> = outer.map(|(): ()| ()).unwrap_err();
        assert!(
            panicked.to_string().starts_with("it panicked at crates/function/src/contain.rs:"),
            "{panicked}"
        );
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn what_panics_when_it_is_freed_is_thrown_away() {
        note_places();
        throw_away(Bomb);
        throw_away(vec![Some(Bomb), None]);
        assert_eq!(contained(|| std::panic::panic_any(Bomb)).unwrap_err().message, "what it says is no text");
    }
}
