// SPDX-License-Identifier: Apache-2.0
//! Events about the engine itself and about quotas of tenants, to all outputs. Quota events also go to the
//! receiver of alerts, as alerts of the tenant.

use super::EveRecorder;
use super::tap::AlertKey;
use bartizan_base::{Generation, RuleId, TenantId, Timestamp};
use bartizan_events::config::HeaderOptions;
use bartizan_events::record::{BartizanFields, NoticeRecord};
use bartizan_events::{Common, JsonWriter};
use bartizan_stages::lifecycle::{FunctionCondition, FunctionEvent, FunctionEventKind};
use bartizan_stages::notice::{Exceeded, Notice};

/// The generator id of quota alerts; no rule has it.
const QUOTA_GID: u32 = 901;

/// The condition of a function after a lifecycle event.
const fn state(what: &FunctionEventKind) -> FunctionCondition {
    match what {
        FunctionEventKind::Failed(..) => FunctionCondition::Failed,
        FunctionEventKind::Started => FunctionCondition::Running,
        FunctionEventKind::Stopped => FunctionCondition::Stopped,
    }
}

impl EveRecorder {
    pub(super) fn write_notice(&mut self, now: Timestamp, generation: Generation, notice: Notice<'_>) {
        match notice {
            Notice::Function(news) => self.write_function(now, generation, news),
            Notice::Quota(exceeded) => {
                self.write_quota(now, generation, exceeded);
                self.tap_quota(now, exceeded);
            }
        }
    }

    fn write_function(&mut self, now: Timestamp, generation: Generation, news: &FunctionEvent) {
        let (message, restart_in_ms) = match &news.what {
            FunctionEventKind::Failed(panicked, wait) => {
                (Some(panicked.to_string()), wait.map(|wait| wait.as_nanos() / 1_000_000))
            }
            FunctionEventKind::Started | FunctionEventKind::Stopped => (None, None),
        };
        let (function, state) = (news.function, state(&news.what).name());
        let record = NoticeRecord::Function { function, state, message: message.as_deref(), restart_in_ms };
        self.write_to_all(
            &record,
            now,
            BartizanFields { generation: Some(generation), ..BartizanFields::default() },
        );
    }

    fn write_quota(&mut self, now: Timestamp, generation: Generation, of: &Exceeded) {
        let own = BartizanFields {
            tenant: Some(of.tenant),
            generation: Some(generation),
            ..BartizanFields::default()
        };
        self.write_to_all(&quota(of), now, own);
    }

    fn write_to_all(&mut self, record: &NoticeRecord<'_>, now: Timestamp, own: BartizanFields<'_>) {
        let (link, interface) = (self.run.link.clone(), self.run.interface.clone());
        let own = BartizanFields { link: link.as_deref(), ..own };
        let common = Common { timestamp: now, in_iface: interface.as_deref(), own, ..Common::default() };
        self.each(|_| true, |writer, output, _| record.write(writer, &output.header, &common));
    }

    fn tap_quota(&mut self, now: Timestamp, of: &Exceeded) {
        let Some(tap) = &mut self.tap else { return };
        let rule = RuleId { gid: QUOTA_GID, sid: of.quota.number(), rev: 1 };
        let key = AlertKey { tenant: of.tenant, rule, source: None, destination: None };
        tap.take(key, now, |header| {
            let message = format!("the tenant's quota of {} is used up ({})", of.quota.name(), of.limit);
            let event = alert(now, header, rule, of.tenant, &message);
            (message, event)
        });
    }
}

fn quota(of: &Exceeded) -> NoticeRecord<'_> {
    NoticeRecord::Quota { tenant: &of.name, quota: of.quota.name(), limit: of.limit, exceeded: of.times }
}

/// The alert part of a quota event: no packet fields, and the fields that a rule would give.
fn alert(now: Timestamp, header: &HeaderOptions, rule: RuleId, tenant: TenantId, message: &str) -> Vec<u8> {
    let own = BartizanFields { tenant: Some(tenant), ..BartizanFields::default() };
    let common = Common { timestamp: now, own, ..Common::default() };
    let mut writer = JsonWriter::new();
    common.write_by_itself(&mut writer, header, "alert", |w| {
        w.object("alert");
        w.str("action", "allowed");
        w.num("gid", rule.gid);
        w.num("signature_id", rule.sid);
        w.num("rev", rule.rev);
        w.str("signature", message);
        w.num("severity", 2u32);
        w.end_object();
    });
    writer.bytes().to_vec()
}
