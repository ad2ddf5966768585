use mayfly_transport_shm::{
    region::{NodeSettings, know_rate, make_node},
    tally::{Began, Done, LONG_BYTES, Seen, Subject},
};

use super::*;

fn node() -> &'static NodeRegion {
    let settings = NodeSettings { instance: 7, times: 0, locks: 1, deadline_ms: 1000 };
    let (_, node) = make_node(&settings).expect("memory");
    std::thread::sleep(std::time::Duration::from_millis(2));
    know_rate(node);
    node
}

fn did(node: &NodeRegion, session: usize, kind: Kind, bytes: usize, path: &[u8]) {
    let tally = &node.tallies[session];
    let began = tally.begin(bytes);
    let subject = Subject { file: 9, directory: 1, path };
    let way = Way::Itself;
    tally.end(began, &node.timeline, || Done { kind, way, failed: false, bytes, subject });
}

#[test]
fn what_processes_count_is_added_up_and_outlives_their_numbers() {
    let node = node();
    for session in [1, 2] {
        node.tallies[session].pid.store(100 + session as u32, Relaxed);
        node.tallies[session].start(b"worker");
        for _ in 0..1000 {
            did(node, session, Kind::Stat, 0, b"a/b");
            did(node, session, Kind::Read, 700, b"a/b");
        }
        node.tallies[session].waited(Op::Open as usize, 3000);
    }
    let work = of_node(node);
    assert_eq!(work.operations["stat"]["itself"], 2000);
    assert_eq!(work.read_bytes["itself"], 1_400_000);
    assert_eq!(work.reads_by_size[1], 2000);
    assert_eq!((work.waits["open"].count, work.waits["open"].by_time[2]), (2, 2));

    // Another process has the number: what the first did is still counted.
    node.past.add_all(&node.tallies[1]);
    node.tallies[1].reset();
    node.tallies[1].pid.store(300, Relaxed);
    let work = of_node(node);
    assert_eq!(work.count(), 4000);
    assert_eq!(operations_of(&node.tallies[1]), 0);
    assert_eq!(node.tallies[1].chosen().count(), 0);
}

/// Does it in another part of the stack.
#[inline(never)]
fn far_below<T>(what: impl FnOnce() -> T) -> T {
    let between = std::hint::black_box([0_u8; 40 << 10]);
    let done = std::hint::black_box(what)();
    std::hint::black_box(&between);
    done
}

/// Calls of a program whose stack happened to lie so that they began in one part of it and ended in
/// another were counted there and looked at here: 3,000 reads were missing in the line of a report.
#[test]
fn what_begins_elsewhere_on_the_stack_than_it_ends_is_noted() {
    const COUNT: u64 = 20_000;
    let node = node();
    let tally = &node.tallies[1];
    tally.pid.store(100, Relaxed);
    #[inline(never)]
    fn begin(tally: &Tally) -> Began {
        tally.begin(0)
    }
    #[inline(never)]
    fn end(node: &NodeRegion, began: Began) {
        let (kind, way, subject) = (Kind::Read, Way::Itself, Subject::default());
        let done = || Done { kind, way, failed: false, bytes: 0, subject };
        node.tallies[1].end(began, &node.timeline, done);
    }
    for _ in 0..COUNT {
        far_below(|| end(node, begin(tally)));
    }
    for _ in 0..COUNT {
        end(node, far_below(|| begin(tally)));
    }
    let spans = Clock::of(node).spans(&node.timeline.short, SHORT_SHIFT);
    let noted: u64 = spans.iter().map(|span| span.operations).sum();
    assert!(noted > 2 * COUNT - COUNT / 10, "{noted} of {}", 2 * COUNT);
}

#[test]
fn samples_stand_for_what_was_not_noted() {
    let node = node();
    let tally = &node.tallies[1];
    tally.pid.store(100, Relaxed);
    for _ in 0..50_000 {
        did(node, 1, Kind::Stat, 0, b"busy/file");
    }
    let long_bytes = LONG_BYTES + 1;
    for _ in 0..10 {
        did(node, 1, Kind::Write, long_bytes, b"long/file");
    }
    let stand: u64 = tally.chosen().map(|seen| u64::from(seen.weight)).sum();
    assert!(stand > 0 && tally.samples_taken() > 500, "{} samples", tally.samples_taken());
    let line: u64 = Clock::of(node)
        .spans(&node.timeline.short, SHORT_SHIFT)
        .iter()
        .map(|span| span.operations)
        .sum();
    // The last sample of a thread stands for what came before it.
    assert!((49_800..=50_010).contains(&line), "{line} operations in the time line");
    let written: u64 = Clock::of(node)
        .spans(&node.timeline.long, LONG_SHIFT)
        .iter()
        .map(|span| span.written_bytes)
        .sum();
    assert_eq!(written, 10 * long_bytes as u64);
    assert!(tally.latest().any(|seen| seen.path[..seen.path_bytes] == *b"long/file"));
}

/// A test of the whole report had failed: a log that had 5,000 of 5,300 writes was said to have
/// more than all of them. Chance had noted more of its writes than their share, and all kinds
/// together were scaled to what was counted.
#[test]
fn no_file_is_said_to_have_had_more_of_a_kind_than_all_files_together() {
    let node = node();
    let tally = &node.tallies[1];
    tally.pid.store(100, Relaxed);
    // In an order that no distance of samples keeps step with.
    for number in 0..12_000 {
        match number * 7919 % 12_000 / 3_000 {
            0 => did(node, 1, Kind::Stat, 0, b"busy/none"),
            1 => did(node, 1, Kind::Read, 512, b"busy/large"),
            2 => did(node, 1, Kind::Close, 0, b"busy/large"),
            _ => did(node, 1, Kind::Write, 18, b"busy/log"),
        }
    }
    for _ in 0..32 {
        did(node, 1, Kind::Write, 1 << 20, b"busy/large");
    }
    let samples: Vec<Seen> = tally.chosen().collect();
    let scale = busy::Scale::of(tally, &samples);
    let of = |kind: Kind, is_long: bool| {
        let of_kind = samples.iter().filter(|seen| seen.kind == kind as u8);
        let of_size = of_kind.filter(|seen| (seen.bytes > LONG_BYTES as u64) == is_long);
        of_size.map(|seen| scale.operations(seen)).sum::<f64>().round()
    };
    assert_eq!([of(Kind::Stat, false), of(Kind::Read, false)], [3000.0, 3000.0]);
    assert_eq!([of(Kind::Write, false), of(Kind::Write, true)], [3000.0, 32.0]);
}

#[test]
fn threads_of_a_process_count_next_to_each_other() {
    let node = node();
    node.tallies[1].pid.store(100, Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| did(node, 1, Kind::Stat, 0, b"f")));
        }
    });
    let counted = operations_of(&node.tallies[1]);
    // They do nothing but count, and may share stripes.
    assert!((32_000..=40_000).contains(&counted), "{counted} of 40,000");
}
