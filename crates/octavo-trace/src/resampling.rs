//! Intervals of rates that were counted in windows of an execution, by resampling the windows (the
//! percentile bootstrap, Efron 1979).

use crate::splitmix::splitmix;

/// How often the windows are resampled.
const RESAMPLES: usize = 1000;

/// The 95% interval of the events per thousand instructions, from windows given as their events and
/// instructions; `None` for fewer than two windows.
pub fn interval_of_rate(windows: &[(u64, u64)], seed: u64) -> Option<(f64, f64)> {
    if windows.len() < 2 {
        return None;
    }
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(1);
        windows[(splitmix(state) % windows.len() as u64) as usize]
    };
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let (mut events, mut instructions) = (0u64, 0u64);
            for _ in 0..windows.len() {
                let window = draw();
                events += window.0;
                instructions += window.1;
            }
            1000.0 * events as f64 / instructions.max(1) as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some((means[RESAMPLES * 25 / 1000], means[RESAMPLES * 975 / 1000 - 1]))
}
