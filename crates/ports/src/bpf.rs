// SPDX-License-Identifier: Apache-2.0
//! Classic BPF: instructions, and programs with labels instead of distances. Source: Linux
//! `networking/filter.rst`, `linux/bpf_common.h`.

use libc::sock_filter;

// Classes, sizes, modes and operations (`linux/bpf_common.h`).
pub(crate) const LD_W_ABS: u16 = 0x20;
pub(crate) const LD_H_ABS: u16 = 0x28;
pub(crate) const LD_B_ABS: u16 = 0x30;
pub(crate) const LD_H_IND: u16 = 0x48;
pub(crate) const LDX_MSH: u16 = 0xb1;
pub(crate) const LDX_MEM: u16 = 0x61;
pub(crate) const LD_MEM: u16 = 0x60;
pub(crate) const LD_IMM: u16 = 0x00;
pub(crate) const ST: u16 = 0x02;
pub(crate) const ADD_K: u16 = 0x04;
pub(crate) const ADD_X: u16 = 0x0c;
pub(crate) const MUL_K: u16 = 0x24;
pub(crate) const AND_K: u16 = 0x54;
pub(crate) const RSH_K: u16 = 0x74;
pub(crate) const XOR_X: u16 = 0xac;
pub(crate) const JA: u16 = 0x05;
pub(crate) const JEQ_K: u16 = 0x15;
pub(crate) const RET_K: u16 = 0x06;
pub(crate) const RET_A: u16 = 0x16;
pub(crate) const TAX: u16 = 0x07;
pub(crate) const LD_B_IND: u16 = 0x50;
pub(crate) const LD_LEN: u16 = 0x80;
pub(crate) const LDX_IMM: u16 = 0x01;

// Ethernet types.
pub(crate) const IPV4: u32 = 0x0800;
pub(crate) const IPV6: u32 = 0x86dd;
pub(crate) const STX: u16 = 0x03;
pub(crate) const SUB_X: u16 = 0x1c;
pub(crate) const LSH_K: u16 = 0x64;
pub(crate) const JGT_K: u16 = 0x25;
pub(crate) const JGE_K: u16 = 0x35;
pub(crate) const JGE_X: u16 = 0x3d;
pub(crate) const TXA: u16 = 0x87;

/// A target of jumps in the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

#[derive(Clone, Copy)]
enum BpfInstruction {
    Plain(sock_filter),
    Branch(Branch),
    Ja(Label),
    Place(Label),
}

/// A jump on a comparison of A with `k` or X.
#[derive(Clone, Copy)]
struct Branch {
    code: u16,
    k: u32,
    /// Taken if the comparison has this result.
    on: bool,
    to: Label,
    /// Whether the target is beyond a comparison's reach, so that an unconditional jump is needed.
    far: bool,
}

impl BpfInstruction {
    /// The number of its instructions.
    const fn len(&self) -> usize {
        match self {
            BpfInstruction::Place(_) => 0,
            BpfInstruction::Branch(Branch { far: true, .. }) => 2,
            _ => 1,
        }
    }
}

/// Program under construction.
#[derive(Default)]
pub(crate) struct BpfProgram {
    steps: Vec<BpfInstruction>,
    labels: usize,
}

impl BpfProgram {
    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    pub(crate) fn op(&mut self, code: u16, k: u32) {
        self.steps.push(BpfInstruction::Plain(sock_filter { code, jt: 0, jf: 0, k }));
    }

    /// Jumps to the label if A equals `k`, else continues.
    pub(crate) fn if_equal(&mut self, k: u32, to: Label) {
        self.branch(JEQ_K, k, to);
    }

    /// Jumps to the label if the comparison `code` of A with `k` (or X) holds, else continues.
    pub(crate) fn branch(&mut self, code: u16, k: u32, to: Label) {
        self.steps.push(BpfInstruction::Branch(Branch { code, k, on: true, to, far: true }));
    }

    /// [`BpfProgram::branch`] for a comparison that does not hold.
    pub(crate) fn unless(&mut self, code: u16, k: u32, to: Label) {
        self.steps.push(BpfInstruction::Branch(Branch { code, k, on: false, to, far: true }));
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.steps.push(BpfInstruction::Ja(to));
    }

    pub(crate) fn place(&mut self, label: Label) {
        self.steps.push(BpfInstruction::Place(label));
    }

    /// Resolves jumps. `None`: one goes back, which the tests of the programs exclude.
    pub(crate) fn finish(mut self) -> Option<Vec<sock_filter>> {
        // Shorter jumps only bring labels nearer, so this ends.
        while self.shorten()? {}
        let addresses = self.addresses()?;
        let mut out: Vec<sock_filter> = Vec::new();
        for step in self.steps {
            let next = out.len() + 1;
            let distance = |to: Label, from: usize| addresses.get(to.0)?.checked_sub(from);
            let jump =
                |distance| Some(sock_filter { code: JA, jt: 0, jf: 0, k: u32::try_from(distance).ok()? });
            match step {
                BpfInstruction::Plain(op) => out.push(op),
                BpfInstruction::Ja(to) => out.push(jump(distance(to, next)?)?),
                BpfInstruction::Branch(Branch { code, k, on, to, far }) => {
                    let (taken, other) =
                        if far { (0, 1) } else { (u8::try_from(distance(to, next)?).ok()?, 0) };
                    let (jt, jf) = if on { (taken, other) } else { (other, taken) };
                    out.push(sock_filter { code, jt, jf, k });
                    if far {
                        out.push(jump(distance(to, next + 1)?)?);
                    }
                }
                BpfInstruction::Place(_) => {}
            }
        }
        Some(out)
    }

    /// The positions of labels.
    fn addresses(&self) -> Option<Vec<usize>> {
        let mut addresses = vec![0usize; self.labels + 1];
        let mut at = 0;
        for step in &self.steps {
            if let BpfInstruction::Place(label) = step {
                *addresses.get_mut(label.0)? = at;
            }
            at += step.len();
        }
        Some(addresses)
    }

    /// Turns far jumps into short ones where possible. Returns whether any changed.
    fn shorten(&mut self) -> Option<bool> {
        let addresses = self.addresses()?;
        let (mut at, mut some) = (0, false);
        for step in &mut self.steps {
            at += step.len();
            if let BpfInstruction::Branch(branch) = step
                && branch.far
                && addresses.get(branch.to.0)?.checked_sub(at)? <= usize::from(u8::MAX)
            {
                (branch.far, some) = (false, true);
            }
        }
        Some(some)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Added to an offset, which then counts from the network header.
    const NET: u32 = libc::SKF_NET_OFF as u32;

    /// The way a packet arrived.
    #[derive(Clone, Copy, Default)]
    pub(crate) struct Received {
        /// The tag that the kernel removed.
        pub(crate) tag: Option<u16>,
        /// The type after the link header.
        pub(crate) protocol: u16,
        /// The offset of the network header.
        pub(crate) network: usize,
    }

    /// Runs a program as the kernel does: a load beyond the packet ends it with 0.
    pub(crate) fn run_at(program: &[sock_filter], received: Received, packet: &[u8]) -> u32 {
        const PROTOCOL: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
        const TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
        const HAS_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
        let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
        let load = |from: u32, size: usize| -> Option<u32> {
            let from = if from >= NET { received.network + (from - NET) as usize } else { from as usize };
            let bytes = packet.get(from..from + size)?;
            Some(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
        };
        loop {
            let op = program[at];
            at += 1;
            let k = op.k;
            let loaded = match op.code {
                LD_W_ABS if k == PROTOCOL => Some(Some(u32::from(received.protocol))),
                // Without a tag the kernel may have left another one's value.
                LD_W_ABS if k == TAG => Some(Some(u32::from(received.tag.unwrap_or(0x6123)))),
                LD_W_ABS if k == HAS_TAG => Some(Some(u32::from(received.tag.is_some()))),
                LD_W_ABS => Some(load(k, 4)),
                LD_H_ABS => Some(load(k, 2)),
                LD_B_ABS => Some(load(k, 1)),
                LD_H_IND => Some(load(x.wrapping_add(k), 2)),
                LD_B_IND => Some(load(x.wrapping_add(k), 1)),
                _ => None,
            };
            match (loaded, op.code) {
                (Some(Some(value)), _) => a = value,
                (Some(None), _) => return 0,
                (None, LDX_MSH) => match load(k, 1) {
                    Some(byte) => x = 4 * (byte & 15),
                    None => return 0,
                },
                (None, LDX_MEM) => x = memory[k as usize],
                (None, LD_MEM) => a = memory[k as usize],
                (None, LD_IMM) => a = k,
                (None, LD_LEN) => a = packet.len() as u32,
                (None, LDX_IMM) => x = k,
                (None, STX) => memory[k as usize] = x,
                (None, SUB_X) => a = a.wrapping_sub(x),
                (None, LSH_K) => a <<= k,
                (None, TXA) => a = x,
                (None, JGT_K) => at += usize::from(if a > k { op.jt } else { op.jf }),
                (None, JGE_K) => at += usize::from(if a >= k { op.jt } else { op.jf }),
                (None, JGE_X) => at += usize::from(if a >= x { op.jt } else { op.jf }),
                (None, ST) => memory[k as usize] = a,
                (None, ADD_K) => a = a.wrapping_add(k),
                (None, ADD_X) => a = a.wrapping_add(x),
                (None, MUL_K) => a = a.wrapping_mul(k),
                (None, AND_K) => a &= k,
                (None, RSH_K) => a >>= k,
                (None, XOR_X) => a ^= x,
                (None, TAX) => x = a,
                (None, JA) => at += k as usize,
                (None, JEQ_K) => at += usize::from(if a == k { op.jt } else { op.jf }),
                (None, RET_K) => return k,
                (None, RET_A) => return a,
                (None, code) => panic!("{code:#x}"),
            }
        }
    }

    #[test]
    fn branches_reach_as_far_as_they_must() {
        for (a, expected, between, far_ones) in
            [(6, 1, 600, 2), (7, 2, 600, 2), (6, 1, 254, 0), (7, 2, 254, 0), (6, 1, 255, 2), (7, 2, 255, 2)]
        {
            let mut p = BpfProgram::default();
            let (far, farther) = (p.label(), p.label());
            p.op(LD_IMM, a);
            p.branch(JEQ_K, 7, far);
            p.unless(JEQ_K, 7, farther);
            (0..between).for_each(|_| p.op(RET_K, 0));
            p.place(far);
            p.op(RET_K, 2);
            p.place(farther);
            p.op(RET_K, 1);
            let program = p.finish().unwrap();
            assert_eq!(run_at(&program, Received::default(), &[]), expected);
            assert_eq!(program.len(), 5 + between + far_ones, "{between}");
        }
    }
}
