// SPDX-License-Identifier: Apache-2.0
//! A payload function's view of the application layer, and its reports on transactions.
//!
//! Functions read ([`AppView`]); their reports are collected in [`Marks`], and the data plane applies them
//! when all functions of the path have run on the packet ([`TransactionRound`]). So no function depends on
//! another one's reports, and only the data plane changes parsers.
//!
//! With a packet the functions get the transactions of its direction that were begun or changed since their
//! last run. By default a function is done with a direction of a transaction once it has seen its end. A
//! transaction is freed when all functions of the path are done with both directions and its records are
//! written.

use bartizan_applayer::flow::{AppLayer, HOLDS_MAX};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_applayer::worklist::{Look, TxIds};
use bartizan_base::{Direction, FunctionId, Path, PerDirection};

/// The application layer of a flow at one packet, for one function.
pub struct AppView<'a> {
    layer: &'a AppLayer,
    changed: &'a [TxId],
    /// Transactions that were changed when they came with an earlier piece of the stream.
    again: &'a [TxId],
    parsed: bool,
    news: bool,
    direction: Direction,
    function: FunctionId,
    marks: &'a mut Marks,
}

impl<'a> AppView<'a> {
    /// The application layer: protocol, parser, all existing transactions.
    #[inline]
    #[must_use]
    pub const fn layer(&self) -> &'a AppLayer {
        self.layer
    }

    /// The function that has this view.
    #[inline]
    #[must_use]
    pub const fn function(&self) -> FunctionId {
        self.function
    }

    /// Transactions of the packet's direction that were begun or changed since the functions' last run,
    /// lowest first. Some may no longer exist, and one may come again without a change. A packet with several
    /// calls brings them once.
    #[inline]
    #[must_use]
    pub const fn changed(&self) -> &'a [TxId] {
        self.changed
    }

    /// Whether data of the packet's direction was parsed since the functions' last run.
    #[inline]
    #[must_use]
    pub const fn is_parsed(&self) -> bool {
        self.parsed
    }

    /// Whether some of [`AppView::changed`] were begun or changed in what a reader sees; else the data that
    /// was parsed changed none of them (records of an encrypted session).
    #[inline]
    #[must_use]
    pub const fn has_news(&self) -> bool {
        self.news
    }

    /// The changed transactions that exist and with which the function is not done.
    pub fn transactions(&self) -> impl Iterator<Item = (TxId, &'a dyn Transaction)> + use<'a> {
        self.undone(self.changed)
    }

    /// At a further piece of the stream of the same packet: the transactions that came with the first piece,
    /// if the function is not done with them. They are not new; a function that matches them together with
    /// stream data needs them at all pieces.
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

    /// Reports that the function is done with a transaction, in both directions: it does not get the
    /// transaction any more, and a hold ends.
    pub fn done(&mut self, id: TxId) {
        self.marks.reports.push(TransactionReport::Done(id, self.function));
    }

    /// Holds a transaction beyond its end, until [`AppView::done`]. `false`: the flow has too many held
    /// transactions ([`HOLDS_MAX`]), which is counted. A hold also ends when
    /// [`bartizan_applayer::flow::HOLDS_SPAN`] later transactions have begun, when the function leaves the
    /// flow's path, and when the flow ends, changes its protocol, or is evicted because memory is used up.
    pub fn hold(&mut self, id: TxId) -> bool {
        let tx = self.layer.parser().and_then(|parser| parser.tx(id));
        if tx.is_some_and(|tx| tx.common().held.contains(self.function)) {
            return true;
        }
        let fits = self.layer.held_tx().saturating_add(self.marks.holds) < HOLDS_MAX;
        if fits {
            self.marks.holds = self.marks.holds.saturating_add(1);
            self.marks.reports.push(TransactionReport::Hold(id, self.function));
        } else {
            self.marks.refused = self.marks.refused.saturating_add(1);
        }
        fits
    }

    /// Reports that the function has not inspected the transactions now: it is done with none of them, and
    /// gets all again with the next packet of the direction.
    pub fn later(&mut self) {
        self.marks.later = self.marks.later.with(self.function);
    }

    /// Marks a transaction or a frame, for the writers of records and files.
    pub fn mark(&mut self, mark: RecordMark) {
        self.marks.reports.push(TransactionReport::Mark(mark));
    }

    /// This view, for a callee.
    #[inline]
    pub const fn reborrow(&mut self) -> AppView<'_> {
        AppView {
            layer: self.layer,
            changed: self.changed,
            again: self.again,
            parsed: self.parsed,
            news: self.news,
            direction: self.direction,
            function: self.function,
            marks: self.marks,
        }
    }
}

/// A mark for the writers of records and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordMark {
    /// No record of the transaction is to be written.
    Silent(TxId),
    /// A rule matched on a file of a transaction.
    FileMatched {
        /// The transaction.
        tx: TxId,
        /// The direction of the file.
        direction: Direction,
        /// Index of the file.
        index: usize,
        /// The rule.
        sid: u32,
        /// The file is to be stored.
        store: bool,
    },
    /// The existing files of a transaction are to be stored.
    StoreFiles {
        /// The transaction.
        tx: TxId,
        /// The directions of the files.
        directions: PerDirection<bool>,
    },
    /// All files of a transaction are to be stored, including later ones
    /// ([`bartizan_applayer::transaction::TxCommon::store`]).
    StoreAllFiles {
        /// The transaction.
        tx: TxId,
        /// The directions of the files.
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
    /// The due frames of the packet's direction were inspected, as selected by
    /// [`bartizan_applayer::frames::Frames::due`].
    FramesSeen {
        /// Whether frames with any new data count as due.
        at_once: bool,
    },
}

enum TransactionReport {
    Done(TxId, FunctionId),
    Hold(TxId, FunctionId),
    Mark(RecordMark),
}

/// Reports of functions on transactions at a packet. A worker has one and reuses its memory.
#[derive(Default)]
pub struct Marks {
    reports: Vec<TransactionReport>,
    /// Functions that inspect the transactions later.
    later: Path,
    /// Number of transactions to be held.
    holds: usize,
    /// Holds that were refused.
    refused: u64,
}

impl Marks {
    /// Drops the reports on transactions of a function that has panicked with the current packet. (Marks for
    /// the writers of records stay: they do not name their function.)
    pub fn forget(&mut self, function: FunctionId) {
        self.later = self.later.without(function);
        self.reports.retain(|said| match said {
            TransactionReport::Done(_, by) | TransactionReport::Hold(_, by) => *by != function,
            TransactionReport::Mark(_) => true,
        });
    }
}

/// The transactions of a flow that the functions of its path get with a packet: the data plane's work before
/// and after.
#[derive(Debug)]
pub struct TransactionRound {
    direction: Direction,
    parsed: bool,
    /// Some of the transactions were begun or changed.
    news: bool,
    changed: TxIds,
}

impl TransactionRound {
    /// Takes the transactions for a packet of a direction. [`TransactionRound::end`] has to follow.
    #[inline]
    #[must_use]
    pub fn begin(app: &mut AppLayer, direction: Direction) -> Self {
        let parsed = app.is_parsed(direction);
        let (changed, news) = match app.parser_mut().map(|parser| parser.worklist_mut()) {
            Some(list) if list.waits(Look::Inspect, direction) => {
                let news = list.has_news(direction);
                (list.take(Look::Inspect, direction), news)
            }
            _ => (TxIds::new(), false),
        };
        TransactionRound { direction, parsed, news, changed }
    }

    /// An empty one: the transactions came with the same packet before.
    #[inline]
    #[must_use]
    pub fn empty(direction: Direction) -> Self {
        TransactionRound { direction, parsed: false, news: false, changed: TxIds::new() }
    }

    /// The view of a function.
    #[inline]
    #[must_use]
    pub fn view<'a>(
        &'a self,
        layer: &'a AppLayer,
        function: FunctionId,
        marks: &'a mut Marks,
    ) -> AppView<'a> {
        let TransactionRound { direction, parsed, news, changed } = self;
        AppView {
            layer,
            changed,
            again: &[],
            parsed: *parsed,
            news: *news,
            direction: *direction,
            function,
            marks,
        }
    }

    /// The view of a function at a further piece of the stream of the same packet: nothing in it is new.
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
            news: false,
            direction: self.direction,
            function,
            marks,
        }
    }

    /// Applies the reports of these functions, which have run on the first piece of the stream, and notes the
    /// transactions with which they are done. Returns the number of holds that were refused or ended.
    #[inline]
    pub fn end(self, app: &mut AppLayer, functions: Path, marks: &mut Marks) -> u64 {
        let later = core::mem::take(&mut marks.later);
        if self.parsed && later.is_empty() && protocol_of(app).is_some() {
            app.take_parsed(self.direction);
        }
        let mut refused = 0;
        let mut certificates = PerDirection::default();
        let said = !marks.reports.is_empty() || marks.refused > 0;
        if said {
            (refused, certificates) = note_said(app, self.direction, marks);
        }
        if self.changed.is_empty() && certificates == PerDirection::default() {
            return refused;
        }
        let direction = self.direction;
        self.note_done(app, functions, later, said);
        if certificates != PerDirection::default() {
            request_certificates(app, certificates, direction);
        }
        if app.held_tx() > 0 {
            refused += app.end_old_holds();
        }
        refused
    }

    /// `reported`: a function has reported something about a transaction.
    fn note_done(self, app: &mut AppLayer, functions: Path, later: Path, reported: bool) {
        let TransactionRound { direction, parsed, news, changed } = self;
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
                common.inspected[direction] = progress;
            }
            let ends = progress >= complete || common.ended[direction];
            if ends {
                common.done[direction] = common.done[direction].or(looked);
                ended = true;
            }
            let silent = common.silent && !common.logged;
            if silent {
                parser.silence(id);
            }
            if news || reported || ends {
                parser.worklist_mut().inspected(id, direction);
            }
        }
        if later.is_empty() {
            parser.worklist_mut().recycle(Look::Inspect, direction, changed);
        } else {
            parser.worklist_mut().put_back(Look::Inspect, direction, changed);
        }
        if ended {
            app.note_done(direction, functions);
        }
    }
}

/// Applies the reports of functions. Returns the number of refused holds, and the sides whose certificates
/// are to be stored.
#[inline(never)]
fn note_said(app: &mut AppLayer, direction: Direction, marks: &mut Marks) -> (u64, PerDirection<bool>) {
    let mut refused = core::mem::take(&mut marks.refused);
    let mut certificates = PerDirection::default();
    marks.holds = 0;
    for said in marks.reports.drain(..) {
        match said {
            TransactionReport::Done(id, function) => app.release_tx(id, function),
            TransactionReport::Hold(id, function) => refused += u64::from(!app.hold_tx(id, function)),
            TransactionReport::Mark(RecordMark::StoreCertificates(sides)) => {
                Direction::BOTH.into_iter().for_each(|side| certificates[side] |= sides[side]);
            }
            TransactionReport::Mark(mark) => carry_out(app, direction, mark),
        }
    }
    app.forget_released_tx();
    (refused, certificates)
}

/// Protocol of the transactions that a flow holds now.
fn protocol_of(app: &AppLayer) -> Option<bartizan_applayer::protocol::ProtocolId> {
    app.protocol().protocol().or(app.original())
}

fn carry_out(app: &mut AppLayer, direction: Direction, mark: RecordMark) {
    match mark {
        RecordMark::FrameMatched { frame, rule } => {
            let frame = app.frames_mut().and_then(|frames| frames.get_mut(direction, frame));
            frame.map(|frame| frame.note(rule));
        }
        RecordMark::FramesSeen { at_once } => {
            if let Some(frames) = app.frames_mut() {
                let due = frames.due(direction, at_once);
                frames.mark_inspected(direction, &due);
            }
        }
        RecordMark::Silent(tx) => {
            if let Some(tx) = app.parser_mut().and_then(|parser| parser.tx_mut(tx)) {
                tx.common_mut().silent = true;
            }
        }
        RecordMark::FileMatched { tx, direction, index, sid, store } => {
            let tx = app.parser_mut().and_then(|parser| parser.tx_mut(tx));
            if let Some(file) = tx.and_then(|tx| tx.files_of_mut(direction).get_mut(index)) {
                file.note_rule(sid);
                file.store |= store;
            }
        }
        RecordMark::StoreFiles { tx, directions } | RecordMark::StoreAllFiles { tx, directions } => {
            let Some(tx) = app.parser_mut().and_then(|parser| parser.tx_mut(tx)) else { return };
            for direction in Direction::BOTH.into_iter().filter(|direction| directions[*direction]) {
                tx.common_mut().store[direction] |= matches!(mark, RecordMark::StoreAllFiles { .. });
                tx.files_of_mut(direction).iter_mut().for_each(|file| file.store = true);
            }
        }
        // Applied to all transactions, after the other reports.
        RecordMark::StoreCertificates(_) => {}
    }
}

/// Marks a flow's transactions whose certificates are to be stored.
fn request_certificates(app: &mut AppLayer, sides: PerDirection<bool>, direction: Direction) {
    let Some(parser) = app.parser_mut() else { return };
    for id in parser.tx_range() {
        let Some(tx) = parser.tx_mut(id) else { continue };
        let Some(storing) = tx.storing_mut() else { continue };
        let of_client = sides.to_server && storing.to_server.request();
        let of_server = sides.to_client && storing.to_client.request();
        if of_client || of_server {
            // The certificates may exist already: their writer looks now.
            parser.worklist_mut().inspected(id, direction);
        }
    }
}
