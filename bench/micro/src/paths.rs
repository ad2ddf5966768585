//! What the hooks do for a call that is not ours.

use std::{hint::black_box, sync::Once};

use mayfly_interpose::{Call, Outcome, Start};

/// As in a process of an instance whose directories do not exist: nothing here may attach.
fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let environment =
            [c"MAYFLY_RUN=/nonexistent/run", c"MAYFLY_MOUNT=/nonexistent/mnt", c"MAYFLY_FDS="];
        let pointers = [
            environment[0].as_ptr().cast(),
            environment[1].as_ptr().cast(),
            environment[2].as_ptr().cast(),
            std::ptr::null(),
        ];
        // SAFETY: a valid environment array, once, before any call is dispatched.
        assert!(unsafe { mayfly_interpose::start(&Start { envp: pointers.as_ptr() }) });
    });
}

pub(crate) fn access_elsewhere(count: u64) {
    start();
    let path = c"/usr/share/doc";
    for _ in 0..count {
        let number = mayfly_sys::number::ACCESS;
        let mut call = Call { number, args: [black_box(path).as_ptr() as usize, 0, 0, 0, 0, 0] };
        // SAFETY: the arguments of an access, whose path lives on.
        let outcome = unsafe { mayfly_interpose::dispatch(&mut call) };
        assert!(matches!(black_box(outcome), Outcome::Done(_)));
    }
}
