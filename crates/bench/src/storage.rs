//! The devices below the targets, and what their raw rates were in each repetition.
//!
//! Targets on one device share its figure. It is taken with as many streams as there are processes
//! (but no more than processors), so that a phase of several processes is compared with what
//! several streams get.
//!
//! [`raw`] measures a plain stream, [`mounts`] says what kind of file system a directory is on,
//! [`cold`] makes reads come from the storage, and [`usage`] reads what processes use.

pub(crate) mod cold;
pub(crate) mod mounts;
mod raw;
pub(crate) mod usage;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;

use crate::{
    campaign::interrupt::Interrupt,
    report::{
        results::{DeviceReport, RawReport},
        statistics::Summary,
    },
    workloads::step::Way,
};
use raw::{Device, Rates};

/// All of a run's.
pub(crate) struct Storage {
    devices: Vec<Device>,
    /// For each target its device.
    device_of: Vec<usize>,
    /// For each device and number of processes, one for each repetition.
    rates: BTreeMap<(usize, u32), Vec<Rates>>,
}

impl Storage {
    /// Below these directories, one for each target.
    pub(crate) fn below(directories: &[PathBuf]) -> Result<Storage> {
        let (mut devices, mut device_of) = (Vec::<Device>::new(), Vec::new());
        for directory in directories {
            let device = Device::of(directory)?;
            let known = devices.iter().position(|known| known.id == device.id);
            device_of.push(known.unwrap_or(devices.len()));
            if known.is_none() {
                devices.push(device);
            }
        }
        Ok(Storage { devices, device_of, rates: BTreeMap::new() })
    }

    /// Takes the rates of one repetition.
    pub(crate) fn measure(
        &mut self,
        bytes: u64,
        procs: &[u32],
        interrupt: &Interrupt,
    ) -> Result<()> {
        for (index, device) in self.devices.iter().enumerate() {
            for procs in procs {
                interrupt.check()?;
                let rates = device.measure(bytes, streams(*procs))?;
                self.rates.entry((index, *procs)).or_default().push(rates);
            }
        }
        Ok(())
    }

    /// The rates below a target, MiB/s, one for each repetition.
    pub(crate) fn rates(&self, target: usize, procs: u32, way: Way) -> Vec<f64> {
        let rates = self.device_of.get(target).and_then(|of| self.rates.get(&(*of, procs)));
        let one = |rates: &Rates| if way == Way::Write { rates.write } else { rates.read };
        rates.into_iter().flatten().map(one).collect()
    }

    pub(crate) fn report(&self, labels: &[String], procs: &[u32]) -> Vec<DeviceReport> {
        let report = |(index, device): (usize, &Device)| {
            let on_it = labels.iter().zip(&self.device_of).filter(|(_, of)| **of == index);
            let target = self.device_of.iter().position(|of| *of == index).unwrap_or(0);
            let rates = |procs: &u32| {
                Some(RawReport {
                    streams: streams(*procs),
                    write_mib_per_s: Summary::of(&self.rates(target, *procs, Way::Write))?,
                    read_mib_per_s: Summary::of(&self.rates(target, *procs, Way::Read))?,
                })
            };
            DeviceReport {
                how: device.how(),
                targets: on_it.map(|(label, _)| label.clone()).collect(),
                rates: procs.iter().filter_map(rates).collect(),
            }
        };
        self.devices.iter().enumerate().map(report).collect()
    }
}

/// More streams than processors would only wait for each other.
fn streams(procs: u32) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    procs.min(u32::try_from(cpus).unwrap_or(u32::MAX))
}
