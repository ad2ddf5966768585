//! Nodes that were restarted, as the others see it.
//!
//! What a shard has promised to others it keeps in memory: claims, and who remembers its names. On
//! one node all shards die together. A shard of a node that comes back asks the others which of
//! their operations it still has a part in, before it serves anybody; by this they learn of it.
//! What they had decided they tell, and it takes its claims again. What they had not they plan
//! anew, and what they remember of its names they forget. Of its own operations they ask which
//! ones it has decided; the claims of all others they give back.
//!
//! A node that cannot be reached until the deadline of a question is not waited for: what it
//! remembers has run out by then (`LEASE_SECONDS`). An operation that it had decided and not
//! finished may then meet what was changed meanwhile, which is logged.

use mayfly_meta::record::Step;

use super::{
    Core,
    operation::{ELECTOR, Phase, wanted},
    task::Purpose,
};
use crate::{
    message::{OperationId, Question},
    slots::ShardId,
};

impl Core {
    /// Asks all shards of other nodes.
    pub(super) fn say_returned(&mut self) {
        let all = (0..self.numbering.all()).map(ShardId);
        let numbering = self.numbering;
        for shard in all.filter(|shard| !numbering.is_here(*shard)) {
            self.ask(shard, Question::Returned, Purpose::Recovery);
        }
    }

    /// A shard of another node is back.
    pub(super) fn shard_returned(&mut self, shard: ShardId) -> Vec<(OperationId, Vec<Step>)> {
        self.cache.forget_leases();
        self.void(|question| matches!(question, Question::Lookup { .. }));
        self.forget_prepares(|operation| operation.shard() == shard.0);
        let theirs: Vec<OperationId> =
            self.claims.holders().filter(|operation| operation.shard() == shard.0).collect();
        for operation in theirs {
            self.ask(shard, Question::IsOver(operation), Purpose::Claims(operation));
        }
        if shard == ELECTOR {
            self.tasks.unelect();
        }
        let mut involved = Vec::new();
        for (id, operation) in &mut self.operations {
            let elected = shard == ELECTOR && operation.run.elected;
            let mut steps = operation.steps(shard).to_vec();
            if elected {
                steps.push(Step::Elect);
            }
            if steps.is_empty() {
                continue;
            }
            if let Phase::Applying(_) = operation.phase {
                involved.push((*id, steps));
            } else {
                operation.run.elected &= !elected;
                operation.void();
            }
        }
        involved
    }

    /// Takes the claims of decided operations again.
    pub(super) fn take_part_again(&mut self, operations: &[(OperationId, Vec<Step>)]) {
        for (id, steps) in operations {
            self.next_age = self.next_age.max(id.age());
            if !self.distant.over.contains(id) {
                self.claims.take(*id, wanted(steps));
            }
        }
    }
}
