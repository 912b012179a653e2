// SPDX-License-Identifier: Apache-2.0
//! Answers of rule heads for the packet that is inspected: many candidates share a head, and addresses and
//! ports of the packet are the same for all of them.

/// Number of answers that are kept.
const KEPT: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct HeadAnswer {
    /// Number of the inspection that the answer belongs to; 0 for none.
    inspection: u64,
    head: u32,
    holds: bool,
}

/// Whether addresses and ports of the inspected packet meet a head, by the head's number. A head takes the
/// place of another whose number has the same last bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadAnswers {
    inspection: u64,
    list: [HeadAnswer; KEPT],
}

impl Default for HeadAnswers {
    fn default() -> Self {
        HeadAnswers { inspection: 0, list: [HeadAnswer::default(); KEPT] }
    }
}

impl HeadAnswers {
    /// Forgets all answers: another inspection begins.
    pub(crate) fn reset(&mut self) {
        self.inspection = self.inspection.saturating_add(1);
    }

    /// The answer for a head, computed if it is not known.
    #[inline]
    pub(crate) fn holds(&mut self, head: u32, compute: impl FnOnce() -> bool) -> bool {
        let inspection = self.inspection;
        let Some(answer) = self.list.get_mut(head as usize % KEPT) else { return compute() };
        if (answer.inspection, answer.head) != (inspection, head) {
            *answer = HeadAnswer { inspection, head, holds: compute() };
        }
        answer.holds
    }
}

#[cfg(test)]
mod tests {
    use super::{HeadAnswers, KEPT};

    #[test]
    fn an_answer_is_computed_once_for_a_head_and_an_inspection() {
        let (mut answers, mut computed) = (HeadAnswers::default(), 0);
        let mut ask = |answers: &mut HeadAnswers, head: u32, holds: bool| {
            let answer = answers.holds(head, || {
                computed += 1;
                holds
            });
            (answer, computed)
        };
        answers.reset();
        assert_eq!(ask(&mut answers, 0, true), (true, 1));
        assert_eq!(ask(&mut answers, 0, false), (true, 1));
        assert_eq!(ask(&mut answers, KEPT as u32, false), (false, 2), "in the same place");
        assert_eq!(ask(&mut answers, 0, true), (true, 3));
        answers.reset();
        assert_eq!(ask(&mut answers, 0, false), (false, 4));
    }
}
