//! Random bytes and mutated config files never panic, whatever they mean. `PROPTEST_CASES=100000
//! cargo test -p fitgpt-spec random` runs longer.

use crate::typing::{read, refused};
use fitgpt_spec::{Command, Environment, Settings, World, documents, resolve};
use proptest::prelude::*;

const CONFIG: &str = "'''doc'''\nimport time\nout_dir = 'a' \"b\\x41\\n\" + str(time.time())\n\
    batch_size = (5 * 8 // 3) ** 2 % 7; n_layer = 0x1F\n\
    dropout = -.5 + 1_0e-1 / 2 # note\nbias = True\nvram = '11.69GiB'\n\
    block_size = \\\n  int(1e3)\n_own = batch_size\nmax_iters = _own\n";

const TOML: &str = "out_dir = \"a\\n\"\nbatch_size = 1_000\ndropout = 0.5 # note\nbias = true\n\
    start = '''x\ny'''\nvram = '80%'\nseed = 0xff\n";

/// Reads bytes as a file of this name; if that works, also resolves the run.
fn use_file(path: &str, bytes: &[u8]) {
    let read = |_: &str| Ok(bytes.to_vec());
    let world = World { read: &read, unix_time: 1.5 };
    let arguments = [path.to_string()];
    match Settings::read(Command::Train, &arguments, &world) {
        Ok(settings) => {
            documents::dump(&settings);
            if let Ok((run, _)) = resolve(&settings, &Environment::default()) {
                let _ = run.dims(65).map_err(|error| error.to_string());
            }
        }
        Err(error) => assert!(error.to_string().starts_with(path), "{error}"),
    }
}

/// Words of config files, good and bad, to be put together at random.
fn fragments() -> impl Strategy<Value = Vec<String>> {
    let known = prop::sample::select(vec![
        "batch_size",
        "dropout",
        "out_dir",
        "_x",
        "=",
        "==",
        "(",
        ")",
        "[",
        "{",
        "\"",
        "'",
        "'''",
        "\\",
        "\n",
        "\r",
        " ",
        "  ",
        "#",
        ";",
        ",",
        ".",
        "+",
        "-",
        "*",
        "**",
        "/",
        "//",
        "%",
        "1",
        "0",
        "9223372036854775807",
        "1e308",
        "0x",
        "0b1",
        "1_",
        "True",
        "None",
        "str",
        "int",
        "time",
        "import",
        "if",
        "é",
        "\u{feff}",
        "\0",
        "r'",
        "f'",
        "u\"",
        "\\x",
        "\\u12",
        "\\N",
    ]);
    let other = any::<char>().prop_map(String::from);
    prop::collection::vec(prop_oneof![9 => known.prop_map(String::from), 1 => other], 0..60)
}

proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        use_file("f.py", &bytes);
        use_file("f.toml", &bytes);
    }

    #[test]
    fn random_words(words in fragments()) {
        use_file("f.py", words.concat().as_bytes());
        use_file("f.py", format!("x = {}", words.concat()).as_bytes());
        use_file("f.toml", words.concat().as_bytes());
    }

    #[test]
    fn mutated_files(
        at in any::<prop::sample::Index>(),
        length in 0usize..8,
        put in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        for (path, text) in [("f.py", CONFIG), ("f.toml", TOML)] {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, put.iter().copied());
            use_file(path, &bytes);
        }
    }

    #[test]
    fn random_arguments(argument in "(--)?[a-z_=.]{0,12}(=.{0,12})?", value in ".{0,40}") {
        for key in fitgpt_spec::KEYS {
            let argument = format!("--{}={value}", key.name);
            if let Ok(settings) = read(Command::Train, &[&argument], &[]) {
                let _ = resolve(&settings, &Environment::default());
            }
        }
        let _ = read(Command::Sample, &[&argument], &[]);
    }

    #[test]
    fn whole_number_arithmetic_is_exact(a in any::<i32>(), b in 1i64..100_000, sign in 0..2) {
        let (a, b) = (i64::from(a), if sign == 0 { b } else { -b });
        let text = format!("_r = {a} % {b}\nseed = {a} // {b} * {b} + _r\nout_dir = str(_r)");
        let read = |_: &str| Ok(text.clone().into_bytes());
        let world = World { read: &read, unix_time: 0.0 };
        let settings = Settings::read(Command::Train, &["f.py".to_string()], &world).unwrap();
        prop_assert_eq!(&settings.get("seed").unwrap().value, &fitgpt_spec::Value::Int(a));
        let remainder: i64 = settings.get("out_dir").unwrap().value.plain().parse().unwrap();
        prop_assert!(remainder.abs() < b.abs() && remainder * b >= 0);
    }
}

#[test]
fn endless_lines_and_files_are_refused_in_one_short_line() {
    for text in ["x".repeat(100_000), "batch_size = ".to_string() + &"9".repeat(100_000)] {
        let message = refused(&["f.py"], &[("f.py", &text)]);
        assert!(message.len() < 300 && !message.contains('\n'), "{} bytes", message.len());
    }
}

#[test]
fn endless_arguments_and_fields_are_refused_in_one_short_line() {
    let long = "x".repeat(100_000);
    let field = format!("out_dir = f'{{{long}!r}}'");
    let dashes = format!("-batch_size={long}");
    let name = format!("--{long}");
    let given = [vec!["f.py"], vec![dashes.as_str()], vec![name.as_str()], vec![long.as_str()]];
    for arguments in given {
        for command in [Command::Train, Command::Sample] {
            let message = read(command, &arguments, &[("f.py", &field)]).unwrap_err().to_string();
            assert!(message.len() < 400, "{} bytes: {}", message.len(), &message[..100]);
        }
    }
}
