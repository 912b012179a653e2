// SPDX-License-Identifier: Apache-2.0
//! The order in which a generation is built, stored and run, with any failure.

use super::*;

/// A device and a store that report their calls, with preset results.
struct Told {
    tell: Sender<&'static str>,
    /// Whether the generation builds; whether it is saved ahead; whether it is saved.
    builds: bool,
    ahead: Option<bool>,
    saves: bool,
}

impl Told {
    fn say<T>(&self, step: &'static str, done: T) -> T {
        let _ = self.tell.send(step);
        done
    }
}

fn full<T>() -> io::Result<T> {
    Err(io::ErrorKind::StorageFull.into())
}

impl AgentDevice for Told {
    fn begin(&mut self, _: &Candidate) {
        self.say("begin", ());
    }
    fn build(&mut self, _: &Candidate) -> Result<(), GenerationRefusal> {
        let refusal =
            GenerationRefusal { code: GenerationRefusalCode::Policy, diagnostics: Vec::new(), more: 0 };
        self.say("build", if self.builds { Ok(()) } else { Err(refusal) })
    }
    fn swap(&mut self) -> Vec<WorkerRuns> {
        self.say("swap", Vec::new())
    }
    fn abandon(&mut self, _: &io::Error) {
        self.say("abandon", ());
    }
    fn order(&mut self, _: FunctionOrder, _: &str, _: &Map<String, Value>) -> FunctionState {
        unreachable!("nobody gives orders here")
    }
}

impl GenerationStore for Told {
    fn load(&mut self) -> io::Result<ControllerGeneration> {
        Ok(ControllerGeneration::default())
    }
    fn save(&mut self, _: &ControllerGeneration) -> io::Result<()> {
        self.say("save", if self.saves { Ok(()) } else { full() })
    }
    fn save_ahead(&mut self, _: &ControllerGeneration) -> io::Result<bool> {
        self.say("ahead", self.ahead.map_or_else(full, Ok))
    }
    fn prove(&mut self) -> io::Result<()> {
        self.say("prove", full())
    }
    fn withdraw(&mut self) -> io::Result<()> {
        self.say("withdraw", full())
    }
}

/// The calls, the resulting refusal, and whether a note was made.
fn applied(
    builds: bool,
    ahead: Option<bool>,
    saves: bool,
) -> (Vec<&'static str>, Option<GenerationRefusalCode>, bool) {
    let (tell, steps) = channel();
    let told = |tell| Told { tell, builds, ahead, saves };
    let mut workshop = Workshop { device: told(tell.clone()), store: told(tell) };
    let held = ControllerGeneration { generation: 1, ..ControllerGeneration::default() };
    let (outcome, note) = workshop.apply(&Candidate { manifest: held.manifest().hash(), held });
    drop(workshop);
    (steps.iter().collect(), outcome.err().map(|refusal| refusal.code), note.is_some())
}

#[test]
fn what_runs_is_stored_and_what_is_refused_is_not() {
    let (policy, store) = (Some(GenerationRefusalCode::Policy), Some(GenerationRefusalCode::Store));
    let cases = [
        ((true, Some(true), true), vec!["begin", "ahead", "build", "prove", "swap"], None, false),
        ((true, Some(false), true), vec!["begin", "ahead", "build", "save", "swap"], None, false),
        ((true, Some(false), false), vec!["begin", "ahead", "build", "save", "abandon"], store, true),
        ((true, None, true), vec!["begin", "ahead", "build", "abandon"], store, true),
        ((false, Some(true), true), vec!["begin", "ahead", "build", "withdraw"], policy, true),
        ((false, Some(false), true), vec!["begin", "ahead", "build"], policy, false),
        ((false, None, true), vec!["begin", "ahead", "build"], policy, false),
    ];
    for ((builds, ahead, saves), steps, refused, noted) in cases {
        assert_eq!(applied(builds, ahead, saves), (steps, refused, noted), "{builds} {ahead:?} {saves}");
    }
}
