//! The DRAM of the slow core.

use octavo_config::{DramConfig, MachineConfig};

use super::resources::{Places, first_free};

pub(super) struct Dram {
    config: DramConfig,
    line_bytes: u64,
    /// The last row opened in each bank of each channel, and when its line was requested.
    open: Vec<Option<(u64, u64)>>,
    banks: Vec<Places>,
    channels: Vec<Places>,
    /// By channel, the lines that wait to be written.
    unwritten: Vec<Vec<u64>>,
    /// By channel, the batches of writes: start, end.
    written: Vec<Vec<(u64, u64)>>,
    pub(super) row_hits: u64,
    pub(super) row_conflicts: u64,
}

impl Dram {
    fn new(config: DramConfig, line_bytes: u64) -> Self {
        let banks = (config.channels * config.banks) as usize;
        Dram {
            config,
            line_bytes,
            open: vec![None; banks],
            banks: (0..banks).map(|_| Places::new(1)).collect(),
            channels: (0..config.channels).map(|_| Places::new(1)).collect(),
            unwritten: vec![Vec::new(); config.channels as usize],
            written: vec![Vec::new(); config.channels as usize],
            row_hits: 0,
            row_conflicts: 0,
        }
    }

    /// Reads a line that is requested at a time. Returns how many cycles later it arrives than from a closed row of an
    /// idle bank; negative if it arrives earlier.
    pub(super) fn read(&mut self, line: u64, from: u64) -> i64 {
        let (channel, bank, opens) = self.open(line, from);
        let transfer = u64::from(self.config.transfer_cycles);
        let mut begin = self.refreshed(channel, from);
        while let Some(batch) =
            self.written[channel].iter().find(|batch| (batch.0..batch.1).contains(&begin))
        {
            begin = batch.1;
        }
        let begin = first_free(&[&self.banks[bank]], begin, opens + transfer);
        self.banks[bank].take(begin, opens + transfer, begin + opens + transfer);
        let begin = first_free(&[&self.channels[channel]], begin + opens, transfer);
        self.channels[channel].take(begin, transfer, begin + transfer);
        begin as i64 - (from + u64::from(self.config.activate_cycles)) as i64
    }

    /// Writes a line back: the last line of a batch writes the batch.
    pub(super) fn write(&mut self, line: u64, from: u64) {
        let config = self.config;
        let channel = (line % u64::from(config.channels)) as usize;
        self.unwritten[channel].push(line);
        if self.unwritten[channel].len() < config.write_batch as usize {
            return;
        }
        let batch = std::mem::take(&mut self.unwritten[channel]);
        let mut banks = vec![0; self.banks.len()];
        for line in &batch {
            let (_, bank, opens) = self.open(*line, from);
            banks[bank] += opens + u64::from(config.transfer_cycles);
        }
        let transfers = batch.len() as u64 * u64::from(config.transfer_cycles);
        let slowest = banks.into_iter().max().expect("a bank");
        let cycles = slowest.max(u64::from(config.turn_cycles) + transfers);
        let begin = first_free(&[&self.channels[channel]], self.refreshed(channel, from), cycles);
        self.channels[channel].take(begin, cycles, begin + cycles);
        self.written[channel].push((begin, begin + cycles));
    }

    /// Opens the row of a line. Returns the channel, the bank, and the cycles until the row is open.
    fn open(&mut self, line: u64, from: u64) -> (usize, usize, u64) {
        let config = self.config;
        let (channels, banks) = (u64::from(config.channels), u64::from(config.banks));
        let channel = line % channels;
        let row = line / channels / (config.row_bytes / self.line_bytes);
        let bank = (channel * banks + (row ^ (row / banks)) % banks) as usize;
        let before = self.open[bank].replace((row, from));
        // A refresh that begins after the row was opened closes it.
        let every = u64::from(config.refresh_every_cycles);
        let closes =
            |begin: u64, opened_at: u64| opened_at + every < begin && begin <= from + every;
        let begins = || self.refreshes(channel as usize).take_while(|begin| *begin <= from + every);
        let stays = |opened_at: u64| !begins().any(|begin| closes(begin, opened_at));
        let opens = match before.filter(|(_, at)| stays(*at)).map(|(open, _)| open) {
            None => config.activate_cycles,
            Some(open) if open == row => {
                self.row_hits += 1;
                0
            }
            Some(_) => {
                self.row_conflicts += 1;
                config.precharge_cycles + config.activate_cycles
            }
        };
        (channel as usize, bank, u64::from(opens))
    }

    /// The times at which refreshes of a channel begin, plus a period: the first of them may have begun before time 0.
    fn refreshes(&self, channel: usize) -> impl Iterator<Item = u64> + use<> {
        let every = u64::from(self.config.refresh_every_cycles);
        let first = channel as u64 * every / u64::from(self.config.channels);
        let is_refreshed = self.config.refresh_cycles > 0;
        (0..).take_while(move |_| is_refreshed).map(move |number| first + number * every)
    }

    /// The first time from `from` on at which a channel is not being refreshed.
    fn refreshed(&self, channel: usize, from: u64) -> u64 {
        let refresh = u64::from(self.config.refresh_cycles);
        let every = u64::from(self.config.refresh_every_cycles);
        let is_closed = |at: u64| {
            let mut begins = self.refreshes(channel).take_while(|begin| *begin <= at);
            begins.any(|begin| at < begin + refresh)
        };
        (from + every..).find(|at| !is_closed(*at)).expect("refreshes end") - every
    }
}

/// The parts of memory with their first lines: local memory, then the tiers, which end at the end of memory.
pub(super) fn drams(machine: &MachineConfig) -> Vec<(u64, Option<Dram>)> {
    let line_bytes = machine.cache.line_bytes;
    let memory = machine.host.as_ref().map_or(&machine.memory, |host| &host.memory);
    let mut end = memory.bytes;
    let mut parts = Vec::new();
    for tier in memory.tiers.values().rev() {
        end -= tier.bytes.expect("tiers of these tests have bytes");
        parts.insert(0, (end / line_bytes, tier.dram.or(machine.dram)));
    }
    parts.insert(0, (0, machine.dram));
    let dram = |config: DramConfig| Dram::new(config, line_bytes);
    parts.into_iter().map(|(first, config)| (first, config.map(dram))).collect()
}
