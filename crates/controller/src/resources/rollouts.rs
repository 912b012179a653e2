// SPDX-License-Identifier: Apache-2.0
//! Roll-outs: begin, read, cancel, take back.

use super::document::{DocumentItem, NoStatus, Page};
use crate::access::Need;
use crate::controller::{ChangeOutcome, Draft};
use crate::device::DeviceStatus;
use crate::model::Model;
use crate::problem::{Fault, Refusal};
use crate::rest::http::{Method, Reply};
use crate::rest::route::{BODY_MAX, Body, CURSOR, Call, DRY_RUN, LIMIT, Route, first_page, read_as, schema};
use crate::rollout::{self, KIND, ROLLOUTS_MAX, Rollout, RolloutRequest, RolloutState, STEPS_MAX};
use serde::Deserialize;
use serde_json::json;

/// The routes of this resource.
pub(super) fn routes() -> Vec<Route> {
    let route = |method, path: &str, operation: &str, about: &str| Route {
        method,
        path: path.to_owned(),
        operation: operation.to_owned(),
        about: about.to_owned(),
        need: Need::Admin,
        query: &[],
        body: None,
        tagged: false,
        statuses: &[200],
        answer: Some(schema::<ChangeOutcome>()),
        handler: list,
    };
    let one = "/v1/rollouts/{rollout}";
    vec![
        Route {
            need: Need::Read,
            query: &[LIMIT, CURSOR],
            answer: Some(schema::<Page<DocumentItem<Rollout, NoStatus>>>()),
            ..route(Method::Get, "/v1/rollouts", "list-rollouts", "Every roll-out, the oldest first.")
        },
        Route {
            need: Need::Read,
            answer: Some(schema::<DocumentItem<Rollout, NoStatus>>()),
            handler: get,
            ..route(Method::Get, one, "get-rollout", "One roll-out.")
        },
        Route {
            query: &[DRY_RUN],
            statuses: &[200, 201],
            body: Some(Body { schema: Some(schema::<RolloutRequest>()), max: BODY_MAX }),
            handler: begin,
            ..route(Method::Post, "/v1/rollouts", "begin-rollout", "Begins to bring a generation to devices.")
        },
        Route {
            handler: cancel,
            ..route(
                Method::Post,
                "/v1/rollouts/{rollout}/cancel",
                "cancel-rollout",
                "Ends a roll-out: steps that have not begun do not.",
            )
        },
        Route {
            handler: revert,
            ..route(
                Method::Post,
                "/v1/rollouts/{rollout}/revert",
                "revert-rollout",
                "Reverts a roll-out: its devices run their previous generation again.",
            )
        },
    ]
}

fn list(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (model, cursor, limit) = (call.controller.model(), call.cursor()?, call.limit());
    let items = model.list(KIND, "", cursor.as_deref()).map(|document| {
        let item = json!({ "name": document.id, "generation": document.generation, "spec": document.body });
        (document.id.clone(), item)
    });
    Ok(first_page(items, limit))
}

fn read(model: &Model, id: &str) -> Result<(u64, Rollout), Refusal> {
    let document = model.get(KIND, id);
    document
        .and_then(|document| Some((document.generation, Rollout::deserialize(&document.body).ok()?)))
        .ok_or_else(|| Refusal::NotFound(format!("there is no roll-out `{id}`")))
}

fn get(call: &Call<'_>) -> Result<Reply, Refusal> {
    let (generation, rollout) = read(&call.controller.model(), call.name("rollout"))?;
    Ok(Reply::json(200, &json!({ "name": call.name("rollout"), "generation": generation, "spec": rollout })))
}

fn faults(request: &RolloutRequest) -> Vec<Fault> {
    let mut faults = Vec::new();
    if request.steps.len() > STEPS_MAX {
        faults.push(Fault::new("/steps", format!("more than {STEPS_MAX} steps")));
    }
    for (index, step) in request.steps.iter().enumerate() {
        let pointer = format!("/steps/{index}");
        match (step.percent, &step.labels) {
            (Some(1..=100), None) | (None, Some(_)) => {}
            (Some(_), None) => faults.push(Fault::new(pointer + "/percent", "a step is 1 to 100 per cent")),
            _ => faults.push(Fault::new(pointer, "give either `percent` or `labels`")),
        }
    }
    faults
}

fn begin(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request: RolloutRequest = read_as(&call.json()?)?;
    let faults = faults(&request);
    if !faults.is_empty() {
        return Err(Refusal::Wrong(faults));
    }
    if let Some(generation) =
        request.generation.filter(|generation| *generation <= call.controller.model().generation)
    {
        call.controller.remembers(generation)?;
    }
    let mut made = None;
    let outcome = call.controller.change(&call.principal(), "begin roll-out", call.dry(), |model| {
        let generation = request.generation.unwrap_or(model.generation);
        if generation == 0 || generation > model.generation {
            let message = format!("there is no generation {generation}; the newest is {}", model.generation);
            return Err(Refusal::wrong("/generation", message));
        }
        if let Some((name, _)) = rollout::under_way(model) {
            let message = format!("roll-out `{name}` is under way; cancel it, or wait for its end");
            return Err(Refusal::Conflict(message));
        }
        let plan = rollout::plan(model, &request);
        if plan.iter().all(Vec::is_empty) {
            return Err(Refusal::Conflict("no device matches; correct `labels`".to_owned()));
        }
        let mut rollout = Rollout::new(model, generation, plan);
        let status = rollout.advance(|device| DeviceStatus::of(model, device));
        // Unique names, in the order of time.
        let name = format!("r{:012}", model.generation + 1);
        made = Some(format!("{}/{name}", call.location()));
        let body = serde_json::to_value(&rollout).ok();
        let beyond = (model.count(KIND) + 1).saturating_sub(ROLLOUTS_MAX);
        let oldest =
            model.all(KIND).take(beyond).map(|document| (KIND.to_owned(), document.id.clone(), None));
        let writes = oldest.chain([(KIND.to_owned(), name, body)]).collect();
        Ok(Draft { writes, status, ..Draft::default() })
    })?;
    Ok(match made.filter(|_| !call.dry()) {
        Some(location) => Reply::created(&outcome, location),
        None => Reply::json(200, &outcome),
    })
}

fn cancel(call: &Call<'_>) -> Result<Reply, Refusal> {
    let id = call.name("rollout");
    let outcome = call.controller.change(&call.principal(), "cancel roll-out", false, |model| {
        let (_, mut rollout) = read(model, id)?;
        if rollout.state != RolloutState::Running {
            return Err(Refusal::Conflict("the roll-out has already ended".to_owned()));
        }
        rollout.state = RolloutState::Cancelled;
        let body = serde_json::to_value(&rollout).ok();
        Ok(Draft { writes: vec![(KIND.to_owned(), id.to_owned(), body)], ..Draft::default() })
    })?;
    Ok(Reply::json(200, &outcome))
}

fn revert(call: &Call<'_>) -> Result<Reply, Refusal> {
    let id = call.name("rollout");
    let (_, known) = read(&call.controller.model(), id)?;
    for before in known.before.values().filter(|before| **before > 0) {
        call.controller.remembers(*before)?;
    }
    let outcome = call.controller.change(&call.principal(), "revert roll-out", false, |model| {
        let (_, mut rollout) = read(model, id)?;
        if rollout.state == RolloutState::Reverted {
            return Err(Refusal::Conflict("the roll-out has already been reverted".to_owned()));
        }
        let status = rollout.revert(|device| DeviceStatus::of(model, device));
        let body = serde_json::to_value(&rollout).ok();
        Ok(Draft { writes: vec![(KIND.to_owned(), id.to_owned(), body)], status, ..Draft::default() })
    })?;
    Ok(Reply::json(200, &outcome))
}
