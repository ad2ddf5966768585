//! Single records of the metadata, as they lie in a store.

use mayfly_meta::record::{
    Append, BirthKey, Counters, Dentry, Inode, Instance, Intent, Member, SlotRanges, Xattrs,
    decode_locks,
};

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, record)) = bytes.split_first() else { return };
    match which % 11 {
        0 => drop(Dentry::decode(record)),
        1 => drop(Inode::decode_own(record)),
        2 => drop(Intent::decode(record)),
        3 => drop(Member::decode(record)),
        4 => drop(Counters::decode(record)),
        5 => drop(BirthKey::decode(record)),
        6 => drop(Append::decode(record)),
        7 => drop(decode_locks(record)),
        8 => drop(Instance::decode(record)),
        9 => drop(SlotRanges::decode(record)),
        _ => drop(Xattrs::decode(record)),
    }
    // As another process reads them.
    let _ = mayfly_records::of_dentry(record);
    let _ = mayfly_records::of_inode(record);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let whole = [
        (4, Counters::default().encode().to_vec()),
        (5, BirthKey::default().encode()),
        (8, Instance { id: 1, shard: 2, chunk_log2: 19 }.encode().to_vec()),
        (9, SlotRanges { version: 1, runs: vec![(0, 0), (9, 1)] }.encode()),
    ];
    let seed = |(which, record): (u8, Vec<u8>)| [&[which][..], &record].concat();
    whole.into_iter().map(seed).chain((0..11).map(|which| vec![which; 64])).collect()
}
