// SPDX-License-Identifier: Apache-2.0
//! One worker on live ports, while a test simulates the hosts around it.

use bartizan_dataplane::driver::{Control, Driver, LiveOptions};
use bartizan_dataplane::handover::Station;
use bartizan_dataplane::source::InlineSource;
use bartizan_dataplane::worker::Worker;
use bartizan_ports::InlinePair;
use bartizan_stages::record::Recorder;

/// Runs a worker inline while `test` runs; its argument returns whether the worker has ended. Afterwards the
/// worker is stopped, and its flows are ended. Returns the test's result, and the worker with its ports and
/// counters.
///
/// # Panics
/// A port fails, or the worker does.
pub fn inline<'r, R: Recorder + Send, T>(
    worker: Worker,
    pair: InlinePair,
    recorder: &'r mut R,
    options: &LiveOptions,
    control: &Control,
    test: impl FnOnce(&dyn Fn() -> bool) -> T,
) -> (T, Driver<&'r mut R>) {
    let mut driver = Driver::new(Station::alone(worker), Box::new(InlineSource::new(pair)), recorder);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| driver.run(options, control).unwrap());
        let stop = Stop(control);
        let outcome = test(&|| running.is_finished());
        drop(stop);
        running.join().unwrap();
        outcome
    });
    (outcome, driver)
}

/// Stops the worker, also when the test fails: otherwise the scope would wait for it.
struct Stop<'c>(&'c Control);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
