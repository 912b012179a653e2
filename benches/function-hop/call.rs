// SPDX-License-Identifier: Apache-2.0
//! Measures the cost of catching panics at a call: a chain of three functions behind `dyn`, called as the
//! data plane calls them, with and without containment. Instructions are counted from outside (callgrind), as
//! the difference of two runs.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value as large as the data plane's decision.
#[derive(Clone, Copy)]
struct Decision {
    verdict: u8,
    words: [u32; 8],
}

trait Function {
    fn packet(&self, context: &mut [u64; 32]) -> Decision;
}

struct One(u8);

impl Function for One {
    #[inline(never)]
    fn packet(&self, context: &mut [u64; 32]) -> Decision {
        context[0] += 1;
        Decision { verdict: self.0, words: [context[0] as u32; 8] }
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[inline]
fn contained<T>(call: impl FnOnce() -> T) -> Result<T, Box<String>> {
    let before = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    INSIDE.set(before);
    result.map_err(|_| Box::new(String::new()))
}

#[inline(never)]
fn chain(functions: &[Box<dyn Function>], context: &mut [u64; 32], contains: bool) -> u64 {
    let mut sum = 0;
    for function in functions {
        let decision = if contains {
            match contained(|| function.packet(context)) {
                Ok(decision) => decision,
                Err(_) => continue,
            }
        } else {
            function.packet(context)
        };
        sum += u64::from(decision.verdict) + u64::from(decision.words[3]);
    }
    sum
}

fn main() {
    let contains = std::env::args().nth(1).as_deref() == Some("contained");
    let packets: u64 = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let functions: Vec<Box<dyn Function>> = (0..3).map(|n| Box::new(One(n)) as Box<dyn Function>).collect();
    let mut context = [0u64; 32];
    let sum: u64 = (0..packets).map(|_| chain(black_box(&functions), &mut context, black_box(contains))).sum();
    println!("{}", black_box(sum));
}
