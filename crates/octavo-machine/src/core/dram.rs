//! DRAM: channels, banks and open rows.

use octavo_config::DramConfig;

use super::calendar::Servers;

/// No row of a bank is open.
const CLOSED: u64 = u64::MAX;

/// The memory as one core sees it. Rows open and close in program order; times are of the core.
pub struct Dram {
    config: DramConfig,
    lines_of_row: u64,
    /// Transfers, by channel.
    channels: Box<[Servers]>,
    /// Openings, closings and accesses of rows, by channel and bank.
    banks: Box<[Servers]>,
    /// The open row of each bank.
    rows: Box<[u64]>,
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
            banks: vec![Servers::new(1); banks].into(),
            rows: vec![CLOSED; banks].into(),
            row_hits: 0,
            row_conflicts: 0,
        }
    }

    /// Transfers a line that is asked for at a time. Returns how many cycles later, or earlier, it comes than
    /// from a closed row of an idle bank.
    pub fn transfer(&mut self, line: u64, at: u64, now: u64) -> i64 {
        let DramConfig {
            channels, banks, activate_cycles, precharge_cycles, transfer_cycles, ..
        } = self.config;
        let channel = line % u64::from(channels);
        let asked_at = at;
        let at = self.after_refresh(channel, at);
        let row_of_all = line / u64::from(channels) / self.lines_of_row;
        // Rows of different parts of memory spread over banks.
        let folded = row_of_all ^ (row_of_all / u64::from(banks));
        let bank = (channel * u64::from(banks) + folded % u64::from(banks)) as usize;
        let row = row_of_all / u64::from(banks);
        let before = std::mem::replace(&mut self.rows[bank], row);
        let open_cycles = match before {
            _ if before == row => 0,
            CLOSED => activate_cycles,
            _ => precharge_cycles + activate_cycles,
        };
        self.row_hits += u64::from(before == row);
        self.row_conflicts += u64::from(before != row && before != CLOSED);
        let (open, transfer) = (u64::from(open_cycles), u64::from(transfer_cycles));
        let opened = self.banks[bank].reserve(at, open + transfer, now) + open;
        let start = self.channels[channel as usize].reserve(opened, transfer, now);
        start as i64 - (asked_at + u64::from(activate_cycles)) as i64
    }

    /// The end of the channel's refresh that a time falls into, or that time. Channels are refreshed in turn.
    fn after_refresh(&self, channel: u64, at: u64) -> u64 {
        let every = u64::from(self.config.refresh_every_cycles.max(1));
        let first = channel * every / u64::from(self.config.channels);
        let into = (at + every - first) % every;
        at + u64::from(self.config.refresh_cycles).saturating_sub(into)
    }
}
