//! DRAM: channels, banks and open rows.

use octavo_config::DramConfig;
use rustc_hash::FxHashMap;

use super::calendar::Servers;

/// No row of a bank is open.
const CLOSED: u64 = u64::MAX;

/// The memory as one core sees it. Rows open and close in program order; times are of the core.
pub struct Dram {
    config: DramConfig,
    lines_of_row: u64,
    /// Transfers, by channel.
    channels: Box<[Servers]>,
    /// Openings, closings and reads of rows, by channel and bank.
    banks: Box<[Servers]>,
    /// The open row of each bank, and how many refreshes had begun when it was opened.
    rows: Box<[(u64, u64)]>,
    /// Write-backs that wait, by channel.
    waiting: Box<[Vec<u64>]>,
    /// The times when a channel writes.
    writing: Box<[Servers]>,
    /// Lines found in an open row.
    pub row_hits: u64,
    /// Lines for which another row had to be closed.
    pub row_conflicts: u64,
}

impl Dram {
    /// A memory with all rows closed.
    pub fn new(config: &DramConfig, line_bytes: u64) -> Self {
        let banks = (config.channels * config.banks) as usize;
        Dram {
            config: *config,
            lines_of_row: config.row_bytes / line_bytes,
            channels: vec![Servers::new(1); config.channels as usize].into(),
            waiting: vec![Vec::new(); config.channels as usize].into(),
            writing: vec![Servers::new(1); config.channels as usize].into(),
            banks: vec![Servers::new(1); banks].into(),
            rows: vec![(CLOSED, 0); banks].into(),
            row_hits: 0,
            row_conflicts: 0,
        }
    }

    /// Reads a line that is asked for at a time. Returns how many cycles later, or earlier, it comes than
    /// from a closed row of an idle bank.
    pub fn read(&mut self, line: u64, asked_at: u64, now: u64) -> i64 {
        let channel = self.channel(line);
        let (begun, refreshed) = self.after_refresh(channel, asked_at);
        let (bank, open) = self.open(line, begun);
        let (at, _) = self.writing[channel].find(refreshed, 1);
        let transfer = u64::from(self.config.transfer_cycles);
        let opened = self.banks[bank].reserve(at, open + transfer, now) + open;
        let start = self.channels[channel].reserve(opened, transfer, now);
        start as i64 - (asked_at + u64::from(self.config.activate_cycles)) as i64
    }

    /// Writes a line back: it waits until its channel has a batch, which then closes the channel.
    pub fn write(&mut self, line: u64, at: u64, now: u64) {
        let channel = self.channel(line);
        self.waiting[channel].push(line);
        if self.waiting[channel].len() < self.config.write_batch as usize {
            return;
        }
        let lines = std::mem::take(&mut self.waiting[channel]);
        let transfer = u64::from(self.config.transfer_cycles);
        let (begun, at) = self.after_refresh(channel, at);
        let mut of_banks = FxHashMap::<usize, u64>::default();
        for line in &lines {
            let (bank, open) = self.open(*line, begun);
            *of_banks.entry(bank).or_default() += open + transfer;
        }
        let of_channel = u64::from(self.config.turn_cycles) + lines.len() as u64 * transfer;
        let cycles = of_banks.into_values().fold(of_channel, u64::max);
        let start = self.channels[channel].reserve(at, cycles, now);
        self.writing[channel].occupy(0, start, start + cycles, now);
    }

    fn channel(&self, line: u64) -> usize {
        (line % u64::from(self.config.channels)) as usize
    }

    /// Opens the row of a line after so many refreshes of its channel, each of which closes all rows. Returns the
    /// bank, and the time until the row is open.
    fn open(&mut self, line: u64, refreshes: u64) -> (usize, u64) {
        let DramConfig { channels, banks, activate_cycles, precharge_cycles, .. } = self.config;
        let channel = self.channel(line);
        let row_of_all = line / u64::from(channels) / self.lines_of_row;
        // Rows of different parts of memory spread over banks.
        let folded = row_of_all ^ (row_of_all / u64::from(banks));
        let bank = channel * banks as usize + (folded % u64::from(banks)) as usize;
        let row = row_of_all / u64::from(banks);
        let (open, opened_after) = std::mem::replace(&mut self.rows[bank], (row, refreshes));
        let before = if opened_after < refreshes { CLOSED } else { open };
        let cycles = match before {
            _ if before == row => 0,
            CLOSED => activate_cycles,
            _ => precharge_cycles + activate_cycles,
        };
        self.row_hits += u64::from(before == row);
        self.row_conflicts += u64::from(before != row && before != CLOSED);
        (bank, u64::from(cycles))
    }

    /// How many refreshes of the channel have begun at a time, and the end of the one that the time falls into, or
    /// that time. Channels are refreshed in turn.
    fn after_refresh(&self, channel: usize, at: u64) -> (u64, u64) {
        let DramConfig { channels, refresh_cycles, refresh_every_cycles, .. } = self.config;
        if refresh_cycles == 0 {
            return (0, at);
        }
        let every = u64::from(refresh_every_cycles);
        let first = channel as u64 * every / u64::from(channels);
        let since = at + every - first;
        (since / every, at + u64::from(refresh_cycles).saturating_sub(since % every))
    }
}
