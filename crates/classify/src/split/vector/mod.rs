// SPDX-License-Identifier: Apache-2.0
//! Lookups with vector units, chosen at run time: AVX-512, AVX2. They return the results of the portable
//! form.
//!
//! Reason for `unsafe`: a gather reads wherever its indices point, and no bounds check fits between index
//! and read without undoing the gain. So bounds are proved once: [`Checked`] holds tables in which every
//! index that a lookup can form was compared, at build time, with the length of the table that it reads;
//! the tables do not change after that.

mod avx512;
mod check;

use super::portable::{BLOCK, Stage};
use super::tables::SplitTables;
use crate::flat::{FlatV4, FlatV6};

/// Tables in which every index that a lookup forms is in bounds.
#[derive(Clone, Debug)]
pub(crate) struct Checked(SplitTables);

/// The instruction set of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionSet {
    /// Any machine.
    Portable,
    /// x86-64 with AVX2 and BMI: the portable form, compiled for it.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl InstructionSet {
    /// The best instruction set of this machine.
    #[must_use]
    pub fn best() -> Self {
        [InstructionSet::Avx512, InstructionSet::Avx2]
            .into_iter()
            .find(|l| l.is_here())
            .unwrap_or(InstructionSet::Portable)
    }

    /// Whether this machine has the instruction set.
    #[must_use]
    pub fn is_here(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return match self {
            InstructionSet::Portable => true,
            InstructionSet::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi1")
                    && std::arch::is_x86_feature_detected!("bmi2")
                    && std::arch::is_x86_feature_detected!("lzcnt")
                    && std::arch::is_x86_feature_detected!("popcnt")
            }
            InstructionSet::Avx512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        return self == InstructionSet::Portable;
    }
}

impl Checked {
    /// Checks the tables; returns the instruction set that they can be used with: `Portable` if an index may
    /// be out of bounds.
    pub fn new(tables: SplitTables) -> (Self, InstructionSet) {
        let level = if check::in_bounds(&tables) { InstructionSet::best() } else { InstructionSet::Portable };
        (Checked(tables), level)
    }

    pub fn tables(&self) -> &SplitTables {
        &self.0
    }

    /// Looks a block of IPv4 headers up; `level` is that returned by [`Checked::new`], or lower.
    #[inline(always)]
    pub fn block_v4(&self, level: InstructionSet, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        if level == InstructionSet::Avx512 {
            // SAFETY: `level` was found on this machine, and these tables were found in bounds.
            unsafe { avx512::block_v4(&self.0, headers, best) };
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if level == InstructionSet::Avx2 {
            // SAFETY: `level` was found on this machine.
            unsafe { avx2_v4(&self.0, headers, best) };
            return;
        }
        let _ = level;
        portable_v4(&self.0, headers, best);
    }

    /// Looks a block of IPv6 headers up, as [`Checked::block_v4`].
    #[inline(always)]
    pub fn block_v6(&self, level: InstructionSet, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        if level == InstructionSet::Avx512 {
            // SAFETY: as in `block_v4`.
            unsafe { avx512::block_v6(&self.0, headers, best) };
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if level == InstructionSet::Avx2 {
            // SAFETY: `level` was found on this machine.
            unsafe { avx2_v6(&self.0, headers, best) };
            return;
        }
        let _ = level;
        portable_v6(&self.0, headers, best);
    }
}

#[inline(always)]
fn portable_v4(tables: &SplitTables, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
    let mut stage = Stage::default();
    tables.stage_v4(headers, &mut stage);
    tables.aggregate(&stage, headers.len(), best);
}

#[inline(always)]
fn portable_v6(tables: &SplitTables, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
    let mut stage = Stage::default();
    tables.stage_v6(headers, &mut stage);
    tables.aggregate(&stage, headers.len(), best);
}

/// The portable form, compiled for AVX2: its reads stay bounds-checked.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn avx2_v4(tables: &SplitTables, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
    portable_v4(tables, headers, best);
}

/// As [`avx2_v4`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn avx2_v6(tables: &SplitTables, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
    portable_v6(tables, headers, best);
}
