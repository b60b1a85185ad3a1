//! DRAM: channels, banks, open rows, refreshes, and batches of write-backs.

use octavo_config::DramConfig;
use rustc_hash::FxHashMap;

use super::calendar::Servers;

/// Stands for the open row of a bank that has none.
const CLOSED: u64 = u64::MAX;

/// The memory as one core sees it, in cycles of the core. Rows open and close in program order.
pub struct Dram {
    config: DramConfig,
    lines_of_row: u64,
    /// By channel, the transfers of lines that are read, and the batches of write-backs.
    channels: Box<[Servers]>,
    /// By channel and bank, the openings and closings of rows, and the reads from them.
    banks: Box<[Servers]>,
    /// The last row opened in each bank, and how many refreshes of its channel had begun by then.
    rows: Box<[(u64, u64)]>,
    /// By channel, the lines that wait until a batch is complete.
    waiting_writes: Box<[Vec<u64>]>,
    /// By channel, the batches of write-backs alone.
    write_batches: Box<[Servers]>,
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
            waiting_writes: vec![Vec::new(); config.channels as usize].into(),
            write_batches: vec![Servers::new(1); config.channels as usize].into(),
            banks: vec![Servers::new(1); banks].into(),
            rows: vec![(CLOSED, 0); banks].into(),
            row_hits: 0,
            row_conflicts: 0,
        }
    }

    /// Reads a line that is requested at a time. Returns how many cycles later it arrives than from a closed row of an
    /// idle bank and channel; negative if it arrives earlier.
    pub fn read(&mut self, line: u64, requested_at: u64, now: u64) -> i64 {
        let channel = self.channel(line);
        let (refreshes, refreshed) = self.after_refresh(channel, requested_at);
        let (bank, open) = self.open(line, refreshes);
        let (at, _) = self.write_batches[channel].find(refreshed, 1);
        let transfer = u64::from(self.config.transfer_cycles);
        let opened = self.banks[bank].reserve(at, open + transfer, now) + open;
        let start = self.channels[channel].reserve(opened, transfer, now);
        start as i64 - (requested_at + u64::from(self.config.activate_cycles)) as i64
    }

    /// Writes a line back. It waits until its channel has a batch; then the channel is closed while it writes the
    /// batch.
    pub fn write(&mut self, line: u64, at: u64, now: u64) {
        let channel = self.channel(line);
        self.waiting_writes[channel].push(line);
        if self.waiting_writes[channel].len() < self.config.write_batch as usize {
            return;
        }
        let lines = std::mem::take(&mut self.waiting_writes[channel]);
        let transfer = u64::from(self.config.transfer_cycles);
        let (refreshes, at) = self.after_refresh(channel, at);
        let mut bank_cycles = FxHashMap::<usize, u64>::default();
        for line in &lines {
            let (bank, open) = self.open(*line, refreshes);
            *bank_cycles.entry(bank).or_default() += open + transfer;
        }
        let channel_cycles = u64::from(self.config.turn_cycles) + lines.len() as u64 * transfer;
        let cycles = bank_cycles.into_values().fold(channel_cycles, u64::max);
        let start = self.channels[channel].reserve(at, cycles, now);
        self.write_batches[channel].occupy(0, start, start + cycles, now);
    }

    fn channel(&self, line: u64) -> usize {
        (line % u64::from(self.config.channels)) as usize
    }

    /// Opens the row of a line when `refreshes` refreshes of its channel have begun; each of them has closed all rows.
    /// Returns the bank, and the cycles until the row is open.
    fn open(&mut self, line: u64, refreshes: u64) -> (usize, u64) {
        let DramConfig { channels, banks, activate_cycles, precharge_cycles, .. } = self.config;
        let channel = self.channel(line);
        let channel_row = line / u64::from(channels) / self.lines_of_row;
        // The exclusive or spreads rows at regular distances over the banks.
        let folded = channel_row ^ (channel_row / u64::from(banks));
        let bank = channel * banks as usize + (folded % u64::from(banks)) as usize;
        let row = channel_row / u64::from(banks);
        let (last, opened_after) = std::mem::replace(&mut self.rows[bank], (row, refreshes));
        let open = if opened_after < refreshes { CLOSED } else { last };
        let cycles = match open {
            _ if open == row => 0,
            CLOSED => activate_cycles,
            _ => precharge_cycles + activate_cycles,
        };
        self.row_hits += u64::from(open == row);
        self.row_conflicts += u64::from(open != row && open != CLOSED);
        (bank, u64::from(cycles))
    }

    /// How many refreshes of a channel have begun by a time, and the first time from then on at which it is not being
    /// refreshed. Channels are refreshed one after another within each period.
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
