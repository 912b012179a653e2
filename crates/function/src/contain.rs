// SPDX-License-Identifier: Apache-2.0
//! Containment of panics: a panic of a function ends at the call, and the caller gets its message and place.
//!
//! Not contained, because the process ends: a stack overflow, a panic during unwinding, failed allocation,
//! `abort`. A function that does not return is detected elsewhere (docs/functions.md).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A contained panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked {
    /// The panic's message.
    pub message: String,
    /// The panic's place: `file:line:column`. Empty unless [`note_places`] was called.
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

/// Most bytes of a panic's message that are kept.
const MESSAGE_MAX: usize = 512;

thread_local! {
    /// Whether a call is running whose panic will be contained; only [`contained`] and [`drop_contained`]
    /// set it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The latest panic inside such a call.
    static LATEST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// From now on, notes the places of contained panics instead of printing them to standard error. Other panics
/// are printed as usual.
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
    // A panic while the cell is borrowed would be one of this module.
    LATEST.with(|latest| latest.try_borrow_mut().map(|mut latest| *latest = Some(panicked)).ok());
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("what it says is not a string");
    text.chars().take(MESSAGE_MAX).collect()
}

/// Calls `call` and contains a panic. The data that `call` worked on stays as the panic left it: the caller
/// repairs or discards it.
///
/// # Errors The call panicked.
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
    drop_contained(payload);
    Box::new(panicked)
}

/// Drops a value whose state is suspect: a panic of the drop is contained, and the rest of the value leaks.
pub fn drop_contained<T>(value: T) {
    let before = INSIDE.replace(true);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
        // Dropping the payload may panic as well, without end.
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
        assert_eq!(panicked.message, "what it says is not a string");
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
        drop_contained(Bomb);
        drop_contained(vec![Some(Bomb), None]);
        assert_eq!(
            contained(|| std::panic::panic_any(Bomb)).unwrap_err().message,
            "what it says is not a string"
        );
    }
}
