//! The torch generator against PyTorch itself: all vectors come from PyTorch 2.11.0 (x86-64, AVX2).
//! The tests compare bits, not values; long fills are compared by a hash of their bytes.

use fitgpt_rng::torch::{Generator, STATE_WORDS, State, StateError};
use sha2::{Digest, Sha256};

fn fill(generator: &mut Generator, n: usize, mean: f64, std: f64) -> Vec<f32> {
    let mut values = vec![f32::NAN; n];
    generator.normal_fill(&mut values, mean, std);
    values
}

fn hex(values: &[f32]) -> String {
    let words: Vec<String> = values.iter().map(|v| format!("{:08x}", v.to_bits())).collect();
    words.join(" ")
}

fn add(hash: &mut Sha256, values: &[f32]) {
    for value in values {
        hash.update(value.to_le_bytes());
    }
}

fn finish(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn words_and_uniforms() {
    let mut generator = Generator::new(1337);
    let words = [1125387415, 2407456957, 681542492, 913057000];
    for word in words {
        assert_eq!(generator.random_u32(), word);
    }
    assert_eq!(generator.random_u64(), 1194544295 << 32 | 2332513753);
    let mut generator = Generator::new(1337);
    let uniforms: [f32; 4] = std::array::from_fn(|_| generator.uniform());
    assert_eq!(hex(&uniforms), "3da064b8 3efdc17a 3f1f835c 3ed849d0");
}

#[test]
fn randint() {
    let cases: [(u64, u64, &[u64]); 6] = [
        (
            1337,
            1003790,
            &[
                138825, 368537, 972872, 611890, 34195, 709583, 303665, 356460, 483164, 170560,
                73992, 506050,
            ],
        ),
        (1337, 1 << 28, &[259973309, 107750632, 185030105, 145906010]),
        (1337, 9035581174, &[3065872021, 2643422548, 7449559733, 2062126738]),
        (1338, 1003790, &[804708, 857500, 520242, 371420]),
        // PyTorch keeps the low 32 bits of a seed.
        ((1 << 32) + 1337, 1003790, &[138825, 368537, 972872, 611890]),
        (u64::MAX, 1003790, &[745941, 539148, 862106, 627109]),
    ];
    for (seed, high, want) in cases {
        let mut generator = Generator::new(seed);
        for &value in want {
            assert_eq!(generator.randint(high), value, "seed {seed} high {high}");
        }
    }
}

#[test]
fn randint_of_many_ranges_in_one_sequence() {
    let mut generator = Generator::new(0);
    let cases: [(u64, &[u64]); 5] = [
        ((1 << 28) - 1, &[209652404, 130329144, 118924928]),
        (1 << 28, &[172929859, 192771779, 208970761]),
        ((1 << 63) - 1, &[2279347887019741462, 7090591000091277092, 5488544720047782982]),
        (1, &[0]),
        (7, &[4, 2, 4, 2, 6]),
    ];
    for (high, want) in cases {
        for &value in want {
            assert_eq!(generator.randint(high), value, "high {high}");
        }
    }
    assert_eq!(generator.randint(0), 0);
}

#[test]
fn short_normals() {
    let cases = [
        (3, "c001a9db c004314c bf9a4954", [36509554, 71462994]),
        (5, "c001a9db c004314c bf9a4954 bf698785 bfa00745", [51294473, 96752006]),
        (
            15,
            "c001a9db c004314c bf9a4954 bf698785 bfa00745 3f4da0ba be541879 3d5ee300 \
             3e0d2676 bec71fd5 3f036940 3ea9f179 3f214943 3f14da69 bce6b789",
            [55270126, 22946129],
        ),
    ];
    check_fills(&cases);
}

#[test]
fn block_normals() {
    let cases = [
        (
            16,
            "3e391c30 bd8f55eb beb82092 bf6a4ad7 3f203228 3cd0fa30 3f745b02 3d83c929 \
             3eb8e8ba 3f957d08 bfacc94d bf029af1 3e719ee5 be758876 bf6bce2c 3fc58ac2",
            [60406807, 112540312],
        ),
        (
            17,
            "3e391c30 be0efe3a 3e925404 3f771223 c00260aa 3efc7c5b 3fbe55f8 3f174df0 \
             bd42c63c bfc80624 bf947e40 beab7042 3ee54265 bf4d3897 3fc305b3 40208cb0 3e2a2bad",
            [22946129, 75211631],
        ),
        (
            31,
            "3e391c30 bd8f55eb beb82092 bf6a4ad7 3f203228 3cd0fa30 3f745b02 3d83c929 \
             3eb8e8ba 3f957d08 bfacc94d bf029af1 3e719ee5 be758876 bf6bce2c 3c0981c8 \
             bf29c0a7 be80a726 3f814c6d 3df8ed81 3e223370 3f912787 bf93b2eb 3f314184 \
             bf01edea bf6c8619 3f0bf4ee bfbf54df bf9a54dd 3f1262c9 bf18ec39",
            [128938692, 132707039],
        ),
        (
            32,
            "3e391c30 bd8f55eb beb82092 bf6a4ad7 3f203228 3cd0fa30 3f745b02 3d83c929 \
             3eb8e8ba 3f957d08 bfacc94d bf029af1 3e719ee5 be758876 bf6bce2c 3fc58ac2 \
             3faca653 be0efe3a 3e925404 3f771223 c00260aa 3efc7c5b 3fbe55f8 3f174df0 \
             3e010def bfc80624 bf947e40 beab7042 3ee54265 bf4d3897 3fc305b3 40208cb0",
            [55270126, 22946129],
        ),
    ];
    check_fills(&cases);
}

/// Each case: n, the bits, and the next two results of `randint(2**27)`.
fn check_fills(cases: &[(usize, &str, [u64; 2])]) {
    for &(n, want, next) in cases {
        let mut generator = Generator::new(1337);
        assert_eq!(hex(&fill(&mut generator, n, 0.0, 1.0)), want, "n {n}");
        let got = [generator.randint(1 << 27), generator.randint(1 << 27)];
        assert_eq!(got, next, "after n {n}");
    }
}

/// The second value of a pair survives a block fill and is used by the next short one.
#[test]
fn left_over_normal_crosses_calls() {
    let mut generator = Generator::new(1337);
    let steps = [
        (1, "3eeb40fc"),
        (
            16,
            "3f033434 3f002170 3f04e31a 3f005458 3efadafc 3efded04 3eeff3fe 3ef4c1c6 \
             3f013546 3efd8b6f 3ef6915a 3f07e6d5 3efc3c77 3ef85677 3efef859 3f03bdc7",
        ),
        (1, "3eead964"),
        (4, "3f02a0d3 3f01b30e 3f0339c9 3f02fa21"),
        (3, "3effb62c 3efe36d0 3ef37c37"),
        (2, "3f08152d 3f02c368"),
    ];
    for (n, want) in steps {
        assert_eq!(hex(&fill(&mut generator, n, 0.5, 0.02)), want, "n {n}");
    }
    let got = [generator.randint(1 << 27), generator.randint(1 << 27)];
    assert_eq!(got, [43687432, 112537160]);
}

#[test]
fn many_short_fills() {
    let mut generator = Generator::new(5);
    let mut hash = Sha256::new();
    for i in 0..20_000 {
        add(&mut hash, &fill(&mut generator, 1 + i % 15, 0.25, 0.02));
    }
    let want = "26f3b4a4b4dcadf24dc0d6aef5ccb0028b828d48903d5961f9958df8e19a9a35";
    assert_eq!(finish(hash), want);
    assert_eq!(generator.randint(1 << 27), 60503537);
}

#[test]
fn long_fills() {
    // Seed, n, mean, std, hash of the values, and the next result of `randint(2**27)`.
    let cases = [
        (
            (1337, 100_003, 0.0, 0.02),
            "033a9670611d726fd77039e403fbd13721167371e119000cf5c76fcfa89d6d7d",
            2153665,
        ),
        (
            (1337, 1 << 20, 0.0, 1.0),
            "5b2126e30de549b2661e16ebab7daf8bcc45d858936beaa9700400532b94bd01",
            37305177,
        ),
        (
            (42, 999_999, -3.25, 0.7),
            "dbb2add6b13932070f6ce0afc5fd02c66bfedc2d9531c34428ebd06a27249621",
            97776424,
        ),
        (
            (7, 12_345, 1.0, 0.0),
            "9ce37e9c362953ff7a3a352b0e544d96a847837f85ec17c3033c21d75b1e218e",
            125088373,
        ),
        // Subnormal and overflowing products.
        (
            (9, 4096, 0.1, 1e-40),
            "a0716aac56c105e28bf645938c547455794c68885ebea6ae6afd8fd148a7b7a7",
            14654945,
        ),
        (
            (9, 4096, 0.0, 1e38),
            "d3951d91f7a9cd45f37c262ae2065cf26f6f15eea2bde1edebac3b0ee045644b",
            14654945,
        ),
    ];
    for ((seed, n, mean, std), want, next) in cases {
        let mut generator = Generator::new(seed);
        let mut hash = Sha256::new();
        add(&mut hash, &fill(&mut generator, n, mean, std));
        assert_eq!(finish(hash), want, "seed {seed} n {n}");
        assert_eq!(generator.randint(1 << 27), next, "seed {seed} n {n}");
    }
    let mut generator = Generator::new(1337);
    generator.skip(generator.normal_draws(100_003));
    assert_eq!(generator.randint(1 << 27), 2153665);
    assert_eq!(generator.randint(1 << 27), 18581143);
}

#[test]
fn dead_fills_can_be_skipped() {
    let lengths = [1, 16, 2, 17, 15, 0, 3, 4096, 5, 650, 1, 4097, 31, 14];
    let mut filled = Generator::new(11);
    let mut skipped = filled.clone();
    let mut counted = filled.clone();
    for n in lengths {
        counted.skip(counted.normal_draws(n));
        fill(&mut filled, n as usize, 0.0, 1.0);
        skipped.skip_normal(n);
        assert_eq!(filled, skipped, "n {n}");
        assert_eq!(filled.clone().random_u64(), counted.random_u64(), "n {n}");
        counted = filled.clone();
    }
}

#[test]
fn draws_of_a_fill() {
    let fresh = Generator::new(1);
    for (n, want) in [(0, 0), (1, 4), (2, 4), (3, 8), (15, 32), (16, 16), (17, 33)] {
        assert_eq!(fresh.normal_draws(n), want, "n {n}");
    }
    assert_eq!(fresh.normal_draws(u64::MAX), u64::MAX);
    let mut with_left_over = fresh;
    with_left_over.skip_normal(1);
    for (n, want) in [(0, 0), (1, 0), (2, 4), (3, 4), (15, 28), (16, 16)] {
        assert_eq!(with_left_over.normal_draws(n), want, "n {n}");
    }
}

#[test]
fn state_round_trip() {
    let mut generator = Generator::new(1337);
    assert_eq!(generator.state().index, 624);
    for _ in 0..1000 {
        generator.random_u32();
    }
    fill(&mut generator, 1, 0.0, 1.0);
    let state = generator.state();
    // `next` of PyTorch's own state at this point.
    assert_eq!(state.index, 380);
    assert!(state.cached_normal.is_some());
    let mut restored = Generator::from_state(state).unwrap();
    assert_eq!(restored, generator);
    for n in [1, 3, 100, 1000] {
        let want = hex(&fill(&mut generator, n, 0.0, 1.0));
        assert_eq!(hex(&fill(&mut restored, n, 0.0, 1.0)), want);
    }
}

#[test]
fn broken_states_are_refused() {
    let good = Generator::new(1).state();
    let broken = [
        (State { index: 625, ..good.clone() }, "generator index is 625, but at most 624 is valid"),
        (
            State {
                words: std::array::from_fn(|i| if i == 0 { 0x7fff_ffff } else { 0 }),
                ..good.clone()
            },
            "generator words are all zero, which no seed produces",
        ),
        (
            State { cached_normal: Some(f64::INFINITY), ..good.clone() },
            "generator's cached normal is inf",
        ),
    ];
    for (state, message) in broken {
        let error = Generator::from_state(state).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = Generator::from_state(State { index: u32::MAX, ..good.clone() });
    assert_eq!(error, Err(StateError::Index(u32::MAX)));
    for index in [0, 1, STATE_WORDS as u32] {
        let state = State { index, ..good.clone() };
        assert!(Generator::from_state(state).is_ok());
    }
}
