//! What is done in a comparison: random operations over a small set of names.
#![allow(unreachable_pub, reason = "a module of one test")]

use proptest::prelude::*;

pub const HANDLES: usize = 3;
pub const O_TMPFILE: u32 = 0o20_200_000;

impl Op {
    /// Not every local file system has these.
    pub fn is_rare(&self) -> bool {
        let temporary = |flags: u32| flags & O_TMPFILE == O_TMPFILE;
        matches!(self, Op::Open(_, _, flags) if temporary(*flags))
            || matches!(
                self,
                Op::Allocate(..) | Op::SetXattr(..) | Op::GetXattr(..) | Op::RemoveXattr(..)
            )
    }
}

#[derive(Debug, Clone)]
pub enum Op {
    Mkdir(String),
    Open(usize, String, u32),
    Close(usize),
    Write(usize, u64, usize, u8),
    Append(usize, usize, u8),
    Read(usize, u64, u32),
    Resize(usize, u64),
    Fstat(usize),
    List(usize),
    Unlink(String, bool),
    Rename(String, String, u32),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    Stat(String, bool),
    Chmod(String, u32),
    Truncate(String, u64),
    Allocate(usize, u32, u64, u64),
    SetXattr(String, u8, usize, u32),
    GetXattr(String, u8),
    RemoveXattr(String, u8),
    LinkOpen(usize, String),
    Restart,
}

fn component() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-c]",
        1 => Just(".".to_owned()),
        1 => Just("..".to_owned()),
        1 => Just("n".repeat(255)),
        1 => Just("n".repeat(256)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        20 => prop::collection::vec("[a-c]", 1..3),
        5 => prop::collection::vec(component(), 1..4),
        1 => Just(Vec::new()),
    ];
    (parts, prop::bool::weighted(0.1)).prop_map(|(parts, slash)| {
        let slash = if slash && !parts.is_empty() { "/" } else { "" };
        parts.join("/") + slash
    })
}

fn flags() -> impl Strategy<Value = u32> {
    let bits = [0o100, 0o200, 0o1000, 0o200_000, 0o400_000, 0o10_000_000];
    let weights = [0.6, 0.1, 0.15, 0.1, 0.1, 0.03];
    let bits = bits.into_iter().zip(weights).map(|(bit, weight)| {
        prop::bool::weighted(weight).prop_map(move |set| if set { bit } else { 0_u32 }).boxed()
    });
    (prop_oneof![1 => Just(0_u32), 1 => Just(1), 3 => Just(2)], bits.collect::<Vec<_>>())
        .prop_map(|(mode, bits)| mode | bits.into_iter().fold(0, |all, bit| all | bit))
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, Just(4096), 4000..5000_u64, 0..200_000_u64]
}

/// Modes of fallocate, good and bad ones.
fn mode() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0_u32, 0, 1, 3, 3, 0x10, 0x10, 0x11, 2, 0x13])
}

fn handle() -> std::ops::Range<usize> {
    0..HANDLES
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => path().prop_map(Op::Mkdir),
        6 => (handle(), path(), flags()).prop_map(|(h, p, f)| Op::Open(h, p, f)),
        2 => handle().prop_map(Op::Close),
        6 => (handle(), size(), 0..6000_usize, any::<u8>())
            .prop_map(|(h, offset, count, byte)| Op::Write(h, offset, count, byte)),
        2 => (handle(), 0..3000_usize, any::<u8>()).prop_map(|(h, c, b)| Op::Append(h, c, b)),
        4 => (handle(), size(), 0..9000_u32).prop_map(|(h, o, c)| Op::Read(h, o, c)),
        2 => (handle(), size()).prop_map(|(h, size)| Op::Resize(h, size)),
        2 => handle().prop_map(Op::Fstat),
        2 => handle().prop_map(Op::List),
        3 => (path(), any::<bool>()).prop_map(|(p, d)| Op::Unlink(p, d)),
        4 => (path(), path(),
            prop_oneof![6 => Just(0_u32), 1 => Just(1), 1 => Just(2), 1 => Just(3)])
            .prop_map(|(a, b, f)| Op::Rename(a, b, f)),
        2 => (path(), path()).prop_map(|(a, b)| Op::Link(a, b)),
        2 => (path(), path()).prop_map(|(a, b)| Op::Symlink(a, b)),
        1 => path().prop_map(Op::ReadLink),
        4 => (path(), any::<bool>()).prop_map(|(p, f)| Op::Stat(p, f)),
        1 => (path(), 0..0o10000_u32).prop_map(|(p, m)| Op::Chmod(p, m)),
        1 => (path(), size()).prop_map(|(p, s)| Op::Truncate(p, s)),
        3 => (handle(), mode(), size(), size()).prop_map(|(h, m, o, c)| Op::Allocate(h, m, o, c)),
        2 => (path(), b'a'..=b'c', 0..300_usize, 0..4_u32)
            .prop_map(|(p, n, c, f)| Op::SetXattr(p, n, c, f)),
        2 => (path(), b'a'..=b'c').prop_map(|(p, n)| Op::GetXattr(p, n)),
        1 => (path(), b'a'..=b'c').prop_map(|(p, n)| Op::RemoveXattr(p, n)),
        1 => (handle(), path(), prop_oneof![3 => Just(2_u32), 1 => Just(0o202), 1 => Just(0)])
            .prop_map(|(h, p, f)| Op::Open(h, p, f | O_TMPFILE)),
        1 => (handle(), path()).prop_map(|(h, p)| Op::LinkOpen(h, p)),
        1 => Just(Op::Restart),
    ]
}
