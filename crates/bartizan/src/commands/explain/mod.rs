// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain`: the treatment of a flow, and the compilation of a rule.

pub mod flow;
mod flow_text;
pub mod rule;
pub mod trace_text;

use bartizan_runtime::error::{Exit, Failure};

/// Arguments.
#[derive(clap::Args)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: ExplainCommand,
}

#[derive(clap::Subcommand)]
enum ExplainCommand {
    /// Explain the treatment of a flow: policy, chain, verdicts; or its history in a capture.
    ///
    /// With a 5-tuple, the policy is evaluated for the flow's first packet: tenant, policy and rule with
    /// their places in the file, fid, path, level, and the verdict of each function. With a capture, the
    /// history of each flow is shown: the contribution of each function, alerts, refusals with reasons,
    /// states, the end.
    #[command(after_help = flow::EXAMPLES)]
    Flow(Box<flow::ExplainFlowArgs>),
    /// Show how the engine compiled a rule: head, fast pattern, conditions in the order of evaluation,
    /// warnings.
    #[command(after_help = rule::EXAMPLES)]
    Rule(rule::ExplainRuleArgs),
}

/// Runs the command.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    match &args.what {
        ExplainCommand::Flow(args) => flow::run(args),
        ExplainCommand::Rule(args) => rule::run(args),
    }
}
