// SPDX-License-Identifier: Apache-2.0
//! The application layer as a payload function sees it, and what it says of the transactions.
//!
//! Functions read ([`AppView`]); what they say is put down in [`Marks`], and the data plane writes it when
//! all functions of the path were shown the packet ([`Showing`]). So no function depends on what another one
//! wrote, and parsers are changed by nobody but the data plane.
//!
//! With a packet the functions are shown the transactions of its direction that were begun or changed since
//! they were shown last. A function that says nothing is done with a direction of a transaction when it was
//! shown its end. A transaction is freed when all functions of the path are done with both directions and its
//! records are written.

use bartizan_applayer::flow::{AppLayer, HOLDS_MAX};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_applayer::worklist::{Look, TxIds};
use bartizan_base::{Direction, FunctionId, Path, PerDirection};

/// The application layer of a flow with one packet, for one function.
pub struct AppView<'a> {
    layer: &'a AppLayer,
    changed: &'a [TxId],
    /// Those that were changed when they came with an earlier piece of the stream.
    again: &'a [TxId],
    parsed: bool,
    direction: Direction,
    function: FunctionId,
    marks: &'a mut Marks,
}

impl<'a> AppView<'a> {
    /// The application layer: protocol, parser, all transactions that are there.
    #[inline]
    #[must_use]
    pub const fn layer(&self) -> &'a AppLayer {
        self.layer
    }

    /// The function that it is shown to.
    #[inline]
    #[must_use]
    pub const fn function(&self) -> FunctionId {
        self.function
    }

    /// Transactions of the packet's direction that were begun or changed since functions were shown them
    /// last, lowest first. Some may be gone, and one may come again without a change. A packet that is handed
    /// in several times brings them once.
    #[inline]
    #[must_use]
    pub const fn changed(&self) -> &'a [TxId] {
        self.changed
    }

    /// Something of the packet's direction was parsed since functions were shown its transactions last.
    #[inline]
    #[must_use]
    pub const fn is_parsed(&self) -> bool {
        self.parsed
    }

    /// The changed transactions that are there and that the function is not done with.
    pub fn transactions(&self) -> impl Iterator<Item = (TxId, &'a dyn Transaction)> + use<'a> {
        self.undone(self.changed)
    }

    /// The packet shows a further piece of the stream: the transactions that came with the first one, if the
    /// function is not done with them. They are not news; who looks for something beside them in the stream
    /// looks at all pieces.
    pub fn transactions_again(&self) -> impl Iterator<Item = (TxId, &'a dyn Transaction)> + use<'a> {
        self.undone(self.again)
    }

    fn undone(&self, which: &'a [TxId]) -> impl Iterator<Item = (TxId, &'a dyn Transaction)> + use<'a> {
        let (parser, direction, function) = (self.layer.parser(), self.direction, self.function);
        which.iter().filter_map(move |id| {
            let tx = parser?.tx(*id).filter(|tx| !tx.common().is_done(direction, function))?;
            Some((*id, tx))
        })
    }

    /// The function needs no more of a transaction, in both directions: it is not shown it any more, and
    /// holds it no longer.
    pub fn done(&mut self, id: TxId) {
        self.marks.said.push(Said::Done(id, self.function));
    }

    /// The function wants a transaction to stay beyond its end, until it says [`AppView::done`]. `false`: too
    /// many of the flow are held ([`HOLDS_MAX`]), which is counted. A hold ends by itself when
    /// [`bartizan_applayer::flow::HOLDS_SPAN`] transactions have begun after it, when the function leaves the
    /// flow's path, and when the flow ends, changes its protocol, or gives way because memory is used up.
    pub fn hold(&mut self, id: TxId) -> bool {
        let tx = self.layer.parser().and_then(|parser| parser.tx(id));
        if tx.is_some_and(|tx| tx.common().held.contains(self.function)) {
            return true;
        }
        let fits = self.layer.held_tx().saturating_add(self.marks.holds) < HOLDS_MAX;
        if fits {
            self.marks.holds = self.marks.holds.saturating_add(1);
            self.marks.said.push(Said::Hold(id, self.function));
        } else {
            self.marks.refused = self.marks.refused.saturating_add(1);
        }
        fits
    }

    /// The function has not looked at the transactions now: it is done with none of them, and all are shown
    /// again with the next packet of the direction.
    pub fn later(&mut self) {
        self.marks.later = self.marks.later.with(self.function);
    }

    /// Asks for something to be noted on a transaction or a frame, for who writes records and files.
    pub fn mark(&mut self, mark: Mark) {
        self.marks.said.push(Said::Mark(mark));
    }

    /// The same for a callee.
    #[inline]
    pub const fn reborrow(&mut self) -> AppView<'_> {
        AppView {
            layer: self.layer,
            changed: self.changed,
            again: self.again,
            parsed: self.parsed,
            direction: self.direction,
            function: self.function,
            marks: self.marks,
        }
    }
}

/// Something to be noted for who writes records and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No record of the transaction is to be written.
    Silent(TxId),
    /// A rule matched on a file of a transaction.
    FileMatched {
        /// The transaction.
        tx: TxId,
        /// Whose file.
        direction: Direction,
        /// Which of its files.
        index: usize,
        /// The rule.
        sid: u32,
        /// The file is to be stored.
        store: bool,
    },
    /// The files of a transaction that are there are to be stored.
    StoreFiles {
        /// The transaction.
        tx: TxId,
        /// Whose files.
        directions: PerDirection<bool>,
    },
    /// All files of a transaction are to be stored, those that come as well
    /// ([`bartizan_applayer::transaction::TxCommon::store`]).
    StoreAllFiles {
        /// The transaction.
        tx: TxId,
        /// Whose files.
        directions: PerDirection<bool>,
    },
    /// The certificates of these sides are to be stored.
    StoreCertificates(PerDirection<bool>),
    /// A rule matched on a frame of the packet's direction.
    FrameMatched {
        /// The frame's number.
        frame: u64,
        /// The rule's position.
        rule: u32,
    },
    /// The frames of the packet's direction that are due were looked at; as
    /// [`bartizan_applayer::frames::Frames::due`] was asked.
    FramesSeen {
        /// Those with anything new, too.
        at_once: bool,
    },
}

enum Said {
    Done(TxId, FunctionId),
    Hold(TxId, FunctionId),
    Mark(Mark),
}

/// What functions say of transactions with a packet. A worker has one, whose memory is used again.
#[derive(Default)]
pub struct Marks {
    said: Vec<Said>,
    /// Functions that look later.
    later: Path,
    /// Transactions that are to be held.
    holds: usize,
    /// Holds that did not fit.
    refused: u64,
}

impl Marks {
    /// A function has panicked: what it said of transactions with the packet in hand is not done. (Marks for
    /// who writes records stay: they do not say whose they are.)
    pub fn forget(&mut self, function: FunctionId) {
        self.later = self.later.without(function);
        self.said.retain(|said| match said {
            Said::Done(_, by) | Said::Hold(_, by) => *by != function,
            Said::Mark(_) => true,
        });
    }
}

/// The transactions of a flow that the functions of its path are shown with a packet: what the data plane
/// does before and after.
#[derive(Debug)]
pub struct Showing {
    direction: Direction,
    parsed: bool,
    changed: TxIds,
}

impl Showing {
    /// Takes what is to be shown with a packet of a direction. [`Showing::end`] has to follow.
    #[inline]
    #[must_use]
    pub fn begin(app: &mut AppLayer, direction: Direction) -> Self {
        let parsed = app.is_parsed(direction);
        let changed = match app.parser_mut().map(|parser| parser.worklist_mut()) {
            Some(list) if list.waits(Look::Inspect, direction) => list.take(Look::Inspect, direction),
            _ => TxIds::new(),
        };
        Showing { direction, parsed, changed }
    }

    /// Nothing is to be shown: it was, with the same packet.
    #[inline]
    #[must_use]
    pub fn nothing(direction: Direction) -> Self {
        Showing { direction, parsed: false, changed: TxIds::new() }
    }

    /// What a function is shown.
    #[inline]
    #[must_use]
    pub fn view<'a>(
        &'a self,
        layer: &'a AppLayer,
        function: FunctionId,
        marks: &'a mut Marks,
    ) -> AppView<'a> {
        let Showing { direction, parsed, changed } = self;
        AppView { layer, changed, again: &[], parsed: *parsed, direction: *direction, function, marks }
    }

    /// What a function is shown with a further piece of the stream that the same packet shows: nothing that
    /// is new.
    #[inline]
    #[must_use]
    pub fn view_again<'a>(
        &'a self,
        layer: &'a AppLayer,
        function: FunctionId,
        marks: &'a mut Marks,
    ) -> AppView<'a> {
        AppView {
            layer,
            changed: &[],
            again: &self.changed,
            parsed: false,
            direction: self.direction,
            function,
            marks,
        }
    }

    /// These functions were shown it, with the first piece of the stream: what they said is noted, and what
    /// they are done with. Gives the number of holds that were refused or ended.
    #[inline]
    pub fn end(self, app: &mut AppLayer, functions: Path, marks: &mut Marks) -> u64 {
        let later = core::mem::take(&mut marks.later);
        if self.parsed && later.is_empty() && protocol_of(app).is_some() {
            app.take_parsed(self.direction);
        }
        let mut refused = 0;
        let mut certificates = PerDirection::default();
        if !marks.said.is_empty() || marks.refused > 0 {
            (refused, certificates) = note_said(app, self.direction, marks);
        }
        if self.changed.is_empty() && certificates == PerDirection::default() {
            return refused;
        }
        let direction = self.direction;
        self.note_done(app, functions, later);
        if certificates != PerDirection::default() {
            ask_for_certificates(app, certificates, direction);
        }
        if app.held_tx() > 0 {
            refused += app.end_old_holds();
        }
        refused
    }

    fn note_done(self, app: &mut AppLayer, functions: Path, later: Path) {
        let Showing { direction, parsed, changed } = self;
        if changed.is_empty() {
            return;
        }
        let spec = protocol_of(app).and_then(protocols::spec);
        let Some(parser) = app.parser_mut() else { return };
        let Some(complete) = spec.map(|spec| spec.complete[direction]) else {
            parser.worklist_mut().put_back(Look::Inspect, direction, changed);
            return;
        };
        let looked = functions.and_not(later);
        let mut ended = false;
        for id in changed.iter().copied().filter(|_| !looked.is_empty()) {
            let Some(tx) = parser.tx_mut(id) else { continue };
            let progress = tx.progress(direction);
            let common = tx.common_mut();
            if functions.and_not(common.done[direction]).is_empty() {
                continue;
            }
            if parsed && later.is_empty() {
                common.looked[direction] = progress;
            }
            if progress >= complete || common.ended[direction] {
                common.done[direction] = common.done[direction].or(looked);
                ended = true;
            }
            let silent = common.silent && !common.logged;
            if silent {
                parser.silence(id);
            }
            parser.worklist_mut().inspected(id, direction);
        }
        if later.is_empty() {
            parser.worklist_mut().give_back(Look::Inspect, direction, changed);
        } else {
            parser.worklist_mut().put_back(Look::Inspect, direction, changed);
        }
        if ended {
            app.note_done(direction, functions);
        }
    }
}

/// Notes what functions said. Gives the number of holds that were refused, and the sides whose certificates
/// were asked for.
#[inline(never)]
fn note_said(app: &mut AppLayer, direction: Direction, marks: &mut Marks) -> (u64, PerDirection<bool>) {
    let mut refused = core::mem::take(&mut marks.refused);
    let mut certificates = PerDirection::default();
    marks.holds = 0;
    for said in marks.said.drain(..) {
        match said {
            Said::Done(id, function) => app.release_tx(id, function),
            Said::Hold(id, function) => refused += u64::from(!app.hold_tx(id, function)),
            Said::Mark(Mark::StoreCertificates(sides)) => {
                Direction::BOTH.into_iter().for_each(|side| certificates[side] |= sides[side]);
            }
            Said::Mark(mark) => carry_out(app, direction, mark),
        }
    }
    app.forget_released_tx();
    (refused, certificates)
}

/// Protocol of the transactions that a flow holds now.
fn protocol_of(app: &AppLayer) -> Option<bartizan_applayer::protocol::ProtocolId> {
    app.protocol().protocol().or(app.original())
}

fn carry_out(app: &mut AppLayer, direction: Direction, mark: Mark) {
    match mark {
        Mark::FrameMatched { frame, rule } => {
            let frame = app.frames_mut().and_then(|frames| frames.get_mut(direction, frame));
            frame.map(|frame| frame.note(rule));
        }
        Mark::FramesSeen { at_once } => {
            if let Some(frames) = app.frames_mut() {
                let due = frames.due(direction, at_once);
                frames.looked(direction, &due);
            }
        }
        Mark::Silent(tx) => {
            if let Some(tx) = app.parser_mut().and_then(|parser| parser.tx_mut(tx)) {
                tx.common_mut().silent = true;
            }
        }
        Mark::FileMatched { tx, direction, index, sid, store } => {
            let tx = app.parser_mut().and_then(|parser| parser.tx_mut(tx));
            if let Some(file) = tx.and_then(|tx| tx.files_of_mut(direction).get_mut(index)) {
                file.note_rule(sid);
                file.store |= store;
            }
        }
        Mark::StoreFiles { tx, directions } | Mark::StoreAllFiles { tx, directions } => {
            let Some(tx) = app.parser_mut().and_then(|parser| parser.tx_mut(tx)) else { return };
            for direction in Direction::BOTH.into_iter().filter(|direction| directions[*direction]) {
                tx.common_mut().store[direction] |= matches!(mark, Mark::StoreAllFiles { .. });
                tx.files_of_mut(direction).iter_mut().for_each(|file| file.store = true);
            }
        }
        // Asked of all transactions, when the rest is noted.
        Mark::StoreCertificates(_) => {}
    }
}

/// Tells a flow's transactions whose certificates were asked for.
fn ask_for_certificates(app: &mut AppLayer, sides: PerDirection<bool>, direction: Direction) {
    let Some(parser) = app.parser_mut() else { return };
    for id in parser.tx_range() {
        let Some(tx) = parser.tx_mut(id) else { continue };
        let Some(storing) = tx.storing_mut() else { continue };
        let of_client = sides.to_server && storing.to_server.ask();
        let of_server = sides.to_client && storing.to_client.ask();
        if of_client || of_server {
            // They may be there already: whoever stores them looks now.
            parser.worklist_mut().inspected(id, direction);
        }
    }
}
