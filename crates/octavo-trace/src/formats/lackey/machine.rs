//! How a piece is compared with text and its addresses are read: once for every processor, and
//! with the vectors of some.

use std::mem::MaybeUninit;

use super::piece::{MAX_DATA, Piece, Window};

/// The addresses of a piece's data lines, and whatever behind.
pub(super) type Addresses = [MaybeUninit<u64>; MAX_DATA];

/// Asks for text that will be compared soon: another processor has put it where it is, and it is
/// far away.
#[inline(always)]
pub(super) fn ask_ahead(window: &Window) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const AHEAD_BYTES: usize = 1536;
        let ahead = window.as_ptr().wrapping_add(AHEAD_BYTES).cast::<i8>();
        // SAFETY: this reads nothing, and is harmless whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(ahead);
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = window;
}

/// A way of doing it.
pub(super) trait Machine {
    /// Whether `window` begins with the lines of `piece`; its addresses are in `out` then.
    ///
    /// # Safety
    ///
    /// The processor must be one of those that the implementation is for.
    unsafe fn take(piece: &Piece, window: &Window, out: &mut Addresses) -> bool;
}

/// Any processor.
pub(super) struct Portable;

impl Machine for Portable {
    #[inline(always)]
    unsafe fn take(piece: &Piece, window: &Window, out: &mut Addresses) -> bool {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
        let mut differences = 0;
        for (own, text) in piece.text.chunks_exact(8).zip(window.chunks_exact(8)) {
            let own = word(own);
            // A piece's text has no byte above 0x7f: only zeros leave the highest bit clear.
            let any = (!(own + LOW) & !LOW) >> 7;
            differences |= (own ^ word(text)) & !(any * 0xff);
        }
        if differences != 0 {
            return false;
        }
        for place in 0..usize::from(piece.data) {
            let end = usize::from(piece.digits_end[place]);
            let mut value = 0;
            for &byte in &window[end - usize::from(piece.digits[place])..end] {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    b'a'..=b'f' => byte - b'a' + 10,
                    _ => return false,
                };
                value = value << 4 | u64::from(digit);
            }
            out[place].write(value);
        }
        true
    }
}

/// Processors with AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Machine for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn take(piece: &Piece, window: &Window, out: &mut Addresses) -> bool {
        use std::arch::x86_64::*;
        /// From byte 16 - n on, the last n of sixteen are ones.
        static TAILS: [u8; 32] = {
            let mut tails = [0; 32];
            let mut at = 16;
            while at < 32 {
                tails[at] = 0xff;
                at += 1;
            }
            tails
        };
        // SAFETY: the caller has seen to AVX2. Text and window are loaded in quarters; digits end
        // at byte 16 or after and are at most 16, so that the loads below lie in the window and in
        // `TAILS`. `out` takes four words.
        unsafe {
            let zero = _mm256_setzero_si256();
            let quarter = |at: usize| {
                let own = _mm256_load_si256(piece.text.as_ptr().add(at).cast());
                let text = _mm256_loadu_si256(window.as_ptr().add(at).cast());
                _mm256_or_si256(_mm256_cmpeq_epi8(own, text), _mm256_cmpeq_epi8(own, zero))
            };
            let same = _mm256_and_si256(
                _mm256_and_si256(quarter(0), quarter(32)),
                _mm256_and_si256(quarter(64), quarter(96)),
            );
            if _mm256_movemask_epi8(same) != -1 {
                return false;
            }
            let digits = |place: usize| {
                let end = usize::from(piece.digits_end[place]);
                let count = usize::from(piece.digits[place]);
                let text = _mm_loadu_si128(window.as_ptr().add(end - 16).cast());
                let tail = _mm_loadu_si128(TAILS.as_ptr().add(count).cast());
                (text, tail)
            };
            // Two addresses: what is wrong with them, and their values as two words.
            let pair = |place: usize| {
                let ((text0, tail0), (text1, tail1)) = (digits(place), digits(place + 1));
                let text = _mm256_set_m128i(text1, text0);
                let tail = _mm256_set_m128i(tail1, tail0);
                let set = _mm256_set1_epi8;
                // Zeros before the first digit.
                let text = _mm256_blendv_epi8(set(b'0' as i8), text, tail);
                let letters = _mm256_cmpgt_epi8(text, set(b'9' as i8));
                let above = _mm256_and_si256(letters, set((b'a' - b'0' - 10) as i8));
                let values = _mm256_sub_epi8(_mm256_sub_epi8(text, set(b'0' as i8)), above);
                let spelling = _mm256_broadcastsi128_si256(_mm_loadu_si128(
                    b"0123456789abcdef".as_ptr().cast(),
                ));
                // Digits are those that are spelt so, and no value needs more than four bits.
                let respelt = _mm256_shuffle_epi8(spelling, values);
                let high = _mm256_and_si256(values, set(0xf0_u8 as i8));
                let wrong = _mm256_or_si256(_mm256_xor_si256(respelt, text), high);
                let bytes = _mm256_maddubs_epi16(values, _mm256_set1_epi16(0x0110));
                let order = _mm256_broadcastsi128_si256(_mm_set_epi8(
                    -1, -1, -1, -1, -1, -1, -1, -1, 0, 2, 4, 6, 8, 10, 12, 14,
                ));
                let words = _mm256_shuffle_epi8(bytes, order);
                (wrong, _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(words)))
            };
            let to: *mut __m128i = out.as_mut_ptr().cast();
            let (mut wrong, first) = pair(0);
            _mm_storeu_si128(to, first);
            if piece.data > 2 {
                let (more, second) = pair(2);
                _mm_storeu_si128(to.add(1), second);
                wrong = _mm256_or_si256(wrong, more);
            }
            _mm256_testz_si256(wrong, wrong) != 0
        }
    }
}

/// Processors with AVX-512, bytes and their permutations among it.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Machine for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512bw,avx512vbmi")]
    unsafe fn take(piece: &Piece, window: &Window, out: &mut Addresses) -> bool {
        use std::arch::x86_64::*;
        // SAFETY: the caller has seen to AVX-512. Text and window are loaded in halves. `out`
        // takes four words.
        unsafe {
            let (own, text) = (piece.text.as_ptr(), window.as_ptr());
            let (own0, text0) = (_mm512_load_si512(own.cast()), _mm512_loadu_si512(text.cast()));
            let own1 = _mm512_load_si512(own.add(64).cast());
            let text1 = _mm512_loadu_si512(text.add(64).cast());
            let fixed0 = _mm512_test_epi8_mask(own0, own0);
            let fixed1 = _mm512_test_epi8_mask(own1, own1);
            let differ0 = _mm512_mask_cmpneq_epi8_mask(fixed0, own0, text0);
            let differ1 = _mm512_mask_cmpneq_epi8_mask(fixed1, own1, text1);
            // Sixteen places for the digits of each address, the last of them last.
            let set = |byte: u8| _mm512_set1_epi8(byte as i8);
            let of_each = |bytes: [u8; MAX_DATA]| {
                let spread = _mm512_set_epi64(
                    0x0303_0303_0303_0303,
                    0x0303_0303_0303_0303,
                    0x0202_0202_0202_0202,
                    0x0202_0202_0202_0202,
                    0x0101_0101_0101_0101,
                    0x0101_0101_0101_0101,
                    0,
                    0,
                );
                _mm512_shuffle_epi8(_mm512_set1_epi32(i32::from_le_bytes(bytes)), spread)
            };
            let before_end = _mm512_broadcast_i32x4(_mm_set_epi8(
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            ));
            let places = _mm512_sub_epi8(of_each(piece.digits_end), before_end);
            let are_digits = _mm512_cmpge_epu8_mask(of_each(piece.digits), before_end);
            let digits = _mm512_permutex2var_epi8(text0, places, text1);
            let digits = _mm512_mask_blend_epi8(are_digits, set(b'0'), digits);
            let letters = _mm512_cmpgt_epi8_mask(digits, set(b'9'));
            let values = _mm512_sub_epi8(digits, set(b'0'));
            let values = _mm512_mask_sub_epi8(values, letters, values, set(b'a' - b'0' - 10));
            // Digits are those that are spelt so, and no value needs more than four bits.
            let spelling = _mm_loadu_si128(b"0123456789abcdef".as_ptr().cast());
            let respelt = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(spelling), values);
            let wrong =
                _mm512_cmpneq_epi8_mask(respelt, digits) | _mm512_test_epi8_mask(values, set(0xf0));
            let bytes = _mm512_maddubs_epi16(values, _mm512_set1_epi16(0x0110));
            let order = _mm512_broadcast_i32x4(_mm_set_epi8(
                -1, -1, -1, -1, -1, -1, -1, -1, 0, 2, 4, 6, 8, 10, 12, 14,
            ));
            let words = _mm512_shuffle_epi8(bytes, order);
            let even = _mm512_set_epi64(0, 0, 0, 0, 6, 4, 2, 0);
            let words = _mm512_castsi512_si256(_mm512_permutexvar_epi64(even, words));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), words);
            differ0 | differ1 | wrong == 0
        }
    }
}
