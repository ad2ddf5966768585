//! When the core has to be looked at.
//!
//! All timers share one alarm. Nobody takes it back: when it rings for nothing, a look at
//! everything sets it anew.

#[derive(Debug)]
pub(super) struct Alarm {
    /// When the core must be looked at, at the latest.
    next_wake_ns: u64,
    /// When everything was last looked at.
    last_look_ns: u64,
    /// The network thread sleeps, and will look at the clock then.
    asleep_until_ns: Option<u64>,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm { next_wake_ns: u64::MAX, last_look_ns: 0, asleep_until_ns: None }
    }

    pub(super) fn next_wake_ns(&self) -> u64 {
        self.next_wake_ns
    }

    /// The core must be looked at then. True when the network thread would sleep for longer, and
    /// has to be woken.
    #[must_use]
    pub(super) fn set(&mut self, at_ns: u64) -> bool {
        self.next_wake_ns = self.next_wake_ns.min(at_ns);
        self.asleep_until_ns.take_if(|until_ns| at_ns < *until_ns).is_some()
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_wake_ns
    }

    /// Whether there is anything to look at, and the last look was so long ago.
    pub(super) fn is_set_since(&self, now_ns: u64, pause_ns: u64) -> bool {
        self.next_wake_ns != u64::MAX && now_ns.saturating_sub(self.last_look_ns) >= pause_ns
    }

    /// A look at everything begins. It sets the alarm for whatever is still to come.
    pub(super) fn begin_look(&mut self, now_ns: u64) {
        self.last_look_ns = now_ns;
        self.next_wake_ns = u64::MAX;
    }

    pub(super) fn sleep(&mut self, until_ns: u64) {
        self.asleep_until_ns = Some(until_ns);
    }

    pub(super) fn awake(&mut self) {
        self.asleep_until_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_once_and_only_for_what_comes_before_it_would_wake() {
        let mut alarm = Alarm::new();
        assert!(!alarm.set(50), "nobody sleeps");
        alarm.sleep(alarm.next_wake_ns());
        assert!(!alarm.set(50) && !alarm.set(60));
        assert!(alarm.set(40) && !alarm.set(30), "it is awake by then");
        assert!(!alarm.is_due(29) && alarm.is_due(30));
        alarm.begin_look(30);
        assert!(!alarm.is_due(u64::MAX - 1) && !alarm.is_set_since(100, 0));
    }
}
