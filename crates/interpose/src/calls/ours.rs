//! A call on a descriptor that is ours, for as long as it is: another thread may replace it, and
//! another process may make it the kernel's.

use mayfly_sys::Errno;

use crate::{
    Call, Outcome,
    descriptors::{handover, table},
    process::{flight, session},
};

/// So often a call begins again because its descriptor was replaced meanwhile.
const REPLACEMENTS_MAX: usize = 32;

/// A call on its first descriptor, when that is ours: a child of vfork may have replaced it.
pub(crate) fn on_ours(call: &Call, serve: impl Fn(&Call) -> Outcome) -> Outcome {
    if flight::child().is_some()
        && let Ok(None) = session::open_file(call.args[0] as i32)
    {
        return Outcome::Pass;
    }
    again_if_replaced(call, |call| match table::get(call.args[0] as i32) {
        table::Meaning::Foreign if flight::child().is_none() => Outcome::Pass,
        table::Meaning::Open(open) if flight::child().is_none() => {
            if handover::has_moved(open) {
                return handover::pass_on(open);
            }
            match serve(call) {
                // Another process has moved it meanwhile; nothing has been done.
                Outcome::Done(raw)
                    if raw == Errno::ESTALE.as_result() && handover::has_moved(open) =>
                {
                    handover::pass_on(open)
                }
                outcome => outcome,
            }
        }
        _ => serve(call),
    })
}

/// Serves a call on its first descriptor, and once more when that fails because another thread put
/// another file in the descriptor's place and the old one ended under the call. The kernel holds a
/// file for the length of a call; we find it gone.
pub(super) fn again_if_replaced(call: &Call, serve: impl Fn(&Call) -> Outcome) -> Outcome {
    let descriptor = call.args[0] as i32;
    let mut meaning = table::get(descriptor);
    for _ in 0..REPLACEMENTS_MAX {
        let outcome = serve(call);
        let now = table::get(descriptor);
        if now == meaning || outcome != Outcome::Done(Errno::EBADF.as_result()) {
            return outcome;
        }
        meaning = now;
    }
    serve(call)
}
