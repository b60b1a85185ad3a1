//! Zipf's distribution over any range, in constant memory.

use octavo_types::values::WHOLE;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Draws ranks from 0, the rank *k* with a probability proportional to *(k + 1)^-theta*.
///
/// By rejection-inversion (W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates
/// from monotone discrete distributions", 1996): the density is bounded by one with a simple
/// integral, which is inverted, and few draws are thrown away.
///
/// Logarithms and exponentials are those of the `libm` crate, plain Rust that adds and multiplies
/// in a fixed order: a machine's own library may round otherwise, and then the same seed would give
/// other addresses there.
pub(super) struct Zipf {
    count: f64,
    last: u64,
    /// 1 - theta.
    power: f64,
    /// The integral at 3/2 less the density at 1, and at the upper end.
    low: f64,
    high: f64,
    /// A draw at most this far below its rank is accepted without a further test.
    sure: f64,
}

impl Zipf {
    /// Over `count` ranks, at least 1; `theta` in billionths.
    pub(super) fn new(count: u64, theta: u64) -> Self {
        let power = 1.0 - theta as f64 / WHOLE as f64;
        let mut zipf =
            Zipf { count: count as f64, last: count - 1, power, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// The next rank.
    #[inline]
    pub(super) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        loop {
            // 53 random bits in [0, 1): exact.
            let unit = (random.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
            let area = self.high + unit * (self.low - self.high);
            let at = self.inverse(area);
            let rank = libm::floor(at + 0.5).clamp(1.0, self.count);
            if rank - at <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return (rank as u64 - 1).min(self.last);
            }
        }
    }

    /// x^-theta.
    fn density(&self, x: f64) -> f64 {
        libm::exp((self.power - 1.0) * libm::log(x))
    }

    /// The density's integral from 1 to x: (x^power - 1) / power, and log x where power is 0.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        log * expm1_over(self.power * log)
    }

    /// The integral's inverse.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may push the area a little below the smallest value of the integral.
        let scaled = (area * self.power).max(-1.0);
        libm::exp(area * log1p_over(scaled))
    }
}

/// (e^x - 1) / x, also near 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x / 2.0 }
}

/// log(1 + x) / x, also near 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::rand_core::SeedableRng;

    /// Every rank is drawn as often as it should be, by the chi-squared statistic.
    #[test]
    fn frequencies_are_those_of_the_law() {
        const DRAWS: f64 = 200_000.0;
        for theta in [0, WHOLE / 2, 990_000_000, WHOLE, 3 * WHOLE / 2, 3 * WHOLE] {
            let exponent = theta as f64 / WHOLE as f64;
            let weights: Vec<f64> = (1..=20).map(|rank| f64::from(rank).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            let zipf = Zipf::new(20, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
            let mut drawn = [0.0; 20];
            (0..DRAWS as u64).for_each(|_| drawn[zipf.draw(&mut random) as usize] += 1.0);
            let chi: f64 = drawn
                .iter()
                .zip(&weights)
                .map(|(drawn, weight)| (weight / total * DRAWS, drawn))
                .map(|(expected, drawn)| (drawn - expected) * (drawn - expected) / expected)
                .sum();
            // 19 degrees of freedom: one seed in a thousand would pass 43.8.
            assert!(chi < 43.8, "theta {exponent}: {chi}");
        }
    }

    #[test]
    fn a_seed_means_the_same_everywhere() {
        let zipf = Zipf::new(1 << 40, 990_000_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let drawn: Vec<u64> = (0..6).map(|_| zipf.draw(&mut random)).collect();
        assert_eq!(drawn, DRAWN);
    }

    const DRAWN: [u64; 6] = [218, 1569, 90_149_344_854, 1612, 10_388_379_033, 160_498];

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn ranks_are_in_range(log2 in 0u32..=45, less in 0u64..1 << 45, theta in 0..=8 * WHOLE, seed: u64) {
            let count = ((1u64 << log2) - less % (1 << log2)).max(1);
            let zipf = Zipf::new(count, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            for _ in 0..20 {
                prop_assert!(zipf.draw(&mut random) < count);
            }
        }
    }
}
